"""docs/operate/alerts.md: each alert fires when it must and is quiet when it must be, by Prometheus' own promtool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster.binaries import build_promtool
from tests.monitoring.cases import CASES, Case
from tests.monitoring.rules import Json, alerts, of_kind, raw_rules, render, unit_tests

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]  # promtool is built the first time


@pytest.fixture(scope="module")
def rules() -> Json:
    """The PrometheusRule's spec, with the chart's defaults."""
    [found] = of_kind(render("prometheus.rules.enabled=true"), "PrometheusRule")
    spec: Json = found["spec"]
    return spec


@pytest.fixture
def files(tmp_path: Path, rules: Json) -> Path:
    """A folder with the rules."""
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    return tmp_path


def promtool(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [build_promtool(), *arguments], cwd=folder, text=True, capture_output=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def tried(folder: Path, *cases: Case) -> tuple[int, str]:
    """promtool's exit code for these cases, and its report."""
    severities = {name: rule["labels"]["severity"] for name, rule in alerts(raw_rules()).items()}
    (folder / "cases.json").write_text(unit_tests("rules.json", cases, severities))
    return promtool(folder, "test", "rules", "cases.json")


def test_promtool_accepts_every_rule_and_every_template(files: Path) -> None:
    code, said = promtool(files, "check", "rules", "--lint-fatal", "rules.json")
    assert code == 0, said
    assert f"{len(raw_rules())} rules found" in said


@pytest.mark.parametrize("alert", sorted(alerts(raw_rules())))
def test_an_alert_fires_when_it_must_and_only_then(files: Path, alert: str) -> None:
    code, said = tried(files, *(case for case in CASES if case.alert == alert))
    assert code == 0, said


def test_a_case_can_fail(files: Path) -> None:
    quiet = next(case for case in CASES if not case.fires)
    code, said = tried(files, Case(quiet.alert, "wrong", quiet.series, quiet.at, ("",)))
    assert code == 1
    assert quiet.alert in said


def test_the_charts_values_are_the_alerts_limits() -> None:
    settings = (
        "errorPercent=0.5",
        "firstTokenSeconds=1.5",
        'runbooks="https://docs.example.com/alerts.html"',
    )
    flags = [f"prometheus.rules.{setting}" for setting in ("enabled=true", *settings)]
    [found] = of_kind(render(*flags, 'prometheus.labels={"release": "metrics"}'), "PrometheusRule")
    made = alerts(rule for group in found["spec"]["groups"] for rule in group["rules"])
    assert "> 0.5 / 100" in made["LLMEndpointErrors"]["expr"]
    assert "> 1.5\n" in made["LLMEndpointFirstTokenSlow"]["expr"]
    link = "https://docs.example.com/alerts.html#llmendpointdown"
    assert made["LLMEndpointDown"]["annotations"]["runbook_url"] == link
    assert found["metadata"]["labels"]["release"] == "metrics"
    assert "${" not in json.dumps(found)


def test_nothing_is_there_until_it_is_asked_for() -> None:
    made = {item["kind"] for item in render()}
    assert not made & {"PodMonitor", "PrometheusRule", "ConfigMap"}


def test_pod_monitors_name_ports_that_the_pods_have() -> None:
    objects = render("prometheus.podMonitors.enabled=true", "batch.enabled=true", 'watchNamespace="team"')
    pods = {d["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: d for d in of_kind(objects, "Deployment")}  # fmt: skip
    monitors = {item["metadata"]["name"].removeprefix("llmendpoint-"): item["spec"] for item in of_kind(objects, "PodMonitor")}  # fmt: skip
    assert monitors.keys() == {*pods, "engines"}
    for name, pod in pods.items():
        labels, spec = pod["spec"]["template"]["metadata"]["labels"], pod["spec"]["template"]["spec"]
        assert monitors[name]["selector"]["matchLabels"].items() <= labels.items()
        [scraped] = monitors[name]["podMetricsEndpoints"]
        containers = [*spec["containers"], *spec.get("initContainers", [])]
        assert scraped["port"] in {port["name"] for c in containers for port in c["ports"]} - {"keda"}
        assert scraped["honorLabels"], "else `namespace` would be the pod's, not the endpoint's"
    engines = monitors["engines"]
    assert engines["namespaceSelector"] == {"matchNames": ["team"]}
    assert "honorLabels" not in engines["podMetricsEndpoints"][0], "an engine could name another's endpoint"
