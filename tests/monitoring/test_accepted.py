"""docs/operate/alerts.md: a cluster with the Prometheus operator's kinds takes all that the chart brings for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.cluster.binaries import monitoring_definitions
from tests.cluster.errors import CommandFailed
from tests.monitoring.rules import Json, of_kind, render

pytestmark = pytest.mark.integration
KINDS = ("podmonitors", "prometheusrules")
ALL = ("podMonitors", "rules", "dashboard")


@pytest.fixture(scope="module")
def monitored(control_plane: Cluster) -> Iterator[Cluster]:
    """The control plane with the kinds, and the namespace of the release."""
    for kind in KINDS:
        path = monitoring_definitions() / f"monitoring.coreos.com_{kind}.yaml"
        control_plane.kubectl("apply", "--server-side", "-f", str(path))
    for kind in KINDS:
        name = f"crd/{kind}.monitoring.coreos.com"
        control_plane.kubectl("wait", "--for=condition=Established", name, "--timeout=30s")
    yield control_plane
    for kind in KINDS:
        control_plane.kubectl("delete", f"crd/{kind}.monitoring.coreos.com", "--wait=false")


def made() -> list[Json]:
    objects = render(*(f"prometheus.{part}.enabled=true" for part in ALL), "batch.enabled=true")
    return [item for kind in ("PodMonitor", "PrometheusRule", "ConfigMap") for item in of_kind(objects, kind)]


def dry_run(cluster: Cluster, item: Json) -> None:
    """With strict validation: a field that the kind does not have is an error."""
    moved = {**item, "metadata": {**item["metadata"], "namespace": "default"}}
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(moved))


def test_the_api_server_takes_every_object(monitored: Cluster) -> None:
    objects = made()
    assert len(objects) == 6  # three of our pods and the engines, the rules, the dashboard
    for item in objects:
        dry_run(monitored, item)


def test_a_field_that_the_kind_does_not_have_would_be_refused(monitored: Cluster) -> None:
    wrong = made()[0]
    wrong["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    with pytest.raises(CommandFailed, match="honourLabels"):
        dry_run(monitored, wrong)
