"""Rollouts in virtual time: how often a judge rolls a healthy revision back, and how soon it sees a bad one.

| module | what it knows |
|---|---|
| settings | the limits, traffic and faults that are simulated: one table of healthy ones, one of degraded ones |
| streams | requests that ended in each second, drawn from a setting and a number |
| rules | the peers' rules and the cumulative share, each small and pure |
| product | the product's own judge behind the same interface; nothing else here calls it |
| rollouts | one rollout under one rule; many under all rules, on all cores |
| tables | what is printed, and what stays in build/bench/verdicts.json |
| \\_\\_main\\_\\_ | the command |
"""
