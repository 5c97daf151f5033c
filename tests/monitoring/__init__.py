"""The chart's monitoring: Prometheus' rules and Grafana's dashboard.

`python -m tests.monitoring` writes the dashboard from its description (dashboard.py); the tests try the rules with
Prometheus' own promtool.
"""
