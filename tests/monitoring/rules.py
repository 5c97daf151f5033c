"""The rules as a cluster gets them, and promtool's opinion of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import progress
from tests.cluster.binaries import build_helm
from tests.monitoring.cases import Case

CHART = Path(__file__).parents[2] / "charts" / "llmendpoint"
RAW = CHART / "monitoring" / "rules.yaml"
Json = dict[str, Any]


def render(*settings: str) -> list[Json]:
    """Objects of the chart with `--set-json` settings."""
    flags = [word for setting in settings for word in ("--set-json", setting)]
    text = progress.run([build_helm(), "template", "llmendpoint", CHART, "-n", "llm-test", *flags])
    return [item for item in yaml.safe_load_all(text) if item]


def of_kind(objects: Iterable[Json], kind: str) -> list[Json]:
    return [item for item in objects if item["kind"] == kind]


def raw_rules() -> list[Json]:
    """All rules of the chart's file, with their placeholders."""
    return [rule for group in yaml.safe_load(RAW.read_text())["groups"] for rule in group["rules"]]


def alerts(rules: Iterable[Json]) -> dict[str, Json]:
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def unit_tests(rules_file: str, cases: Iterable[Case], severities: dict[str, str]) -> str:
    """promtool's file of unit tests: one for each case."""
    tests = []
    for case in cases:
        fired = [_labels(case.alert, severities[case.alert], labels) for labels in case.fires]
        query = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
        tests.append(
            {
                "name": f"{case.alert}: {case.name}",
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": case.at,
                        "exp_samples": [{"labels": labels, "value": 1} for labels in fired],
                    }
                ],
            }
        )
    return json.dumps({"rule_files": [rules_file], "evaluation_interval": "1m", "tests": tests}, indent=1)


def _labels(alert: str, severity: str, more: str) -> str:
    comma = "," if more else ""
    return f'ALERTS{{alertname="{alert}",alertstate="firing",severity="{severity}"{comma}{more}}}'
