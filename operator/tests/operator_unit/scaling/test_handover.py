"""docs/concepts/autoscaling.md: a change of the provider keeps the number of replicas until the new scaler had its time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmendpoint_operator.core.endpoint.plan import Apply, Delete
from llmendpoint_operator.core.endpoint.snapshot import ScalerAddress, Snapshot
from llmendpoint_operator.core.scaling.outcome import Outlook, Scaling
from llmendpoint_operator.core.scaling.providers import AUTOSCALER, SCALED_OBJECT
from llmendpoint_operator.core.scaling.records import present_count

from ..endpoint.test_reported import NAMES, SCALARS, STRANGE_TIMES
from ..fake_cluster import AFTER_ALL, NOW, make_spec
from .test_plan import ScaledCluster, serving

LIVE = {
    "hpa": (AUTOSCALER, [{"type": "ScalingActive", "status": "True"}]),
    "keda": (SCALED_OBJECT, [{"type": "Ready", "status": "True"}, {"type": "HPAActive", "status": "True"}]),
}
SCALERS = (AUTOSCALER[1], SCALED_OBJECT[1])
LATER = NOW + timedelta(minutes=10)


class OutsideCluster(ScaledCluster):
    """With the outside scaler's own object once it is `active`."""

    active_scaler: bool = True

    def snapshot(self, now: datetime = AFTER_ALL) -> Snapshot:
        found = super().snapshot(now)
        provider = str(self.spec.autoscaling.provider) if self.spec.autoscaling else "none"
        address = ScalerAddress("operator:8083", "operator")
        if provider not in LIVE or not self.active_scaler:
            return replace(found, scaler_address=address)
        kind, conditions = LIVE[provider]
        live = {"metadata": {"name": "chat"}, "spec": {}, "status": {"conditions": conditions}}
        return replace(found, scaler_address=address, scalers={kind: live})


def hand_over(provider: str, **fields: Any) -> OutsideCluster:
    """Eight replicas by the builtin scaler, then another one; spec.replicas was never written."""
    cluster = serving()
    cluster.__class__ = OutsideCluster
    cluster.scale(8)
    cluster.settle(NOW)
    cluster.make_ready(str(cluster.active))
    cluster.settle(NOW)
    cluster.scaling = None
    edit(cluster, provider, **fields)
    assert isinstance(cluster, OutsideCluster)
    return cluster


def edit(cluster: ScaledCluster, provider: str, **fields: Any) -> None:
    cluster.edit(make_spec(autoscaling={"provider": provider, "maxReplicas": 10}, **fields))
    work(cluster)


def work(cluster: ScaledCluster, seconds: float = 0) -> int:
    """The count that holds, after everything but the scalers' own objects is as it should be."""
    for _ in range(6):
        for step in cluster.plan(LATER + timedelta(seconds=seconds)).steps:
            foreign = isinstance(step, Apply) and step.manifest["kind"] in SCALERS
            if not foreign and not isinstance(step, Delete):
                cluster.do(step)
    return cluster.replicas()[str(cluster.active)]


@pytest.mark.parametrize("provider", ["hpa", "keda"])
def test_eight_replicas_stay_eight_when_another_scaler_takes_over(provider: str) -> None:
    cluster = hand_over(provider)
    assert work(cluster) == 8
    edit(cluster, provider, replicas=5)
    assert work(cluster, 10) == 8, "on its way up from spec.replicas"
    edit(cluster, provider, replicas=8)
    assert work(cluster, 20) == 8
    edit(cluster, provider, replicas=3)
    assert work(cluster, 30) == 3, "it had the count, and lowers it"
    assert "autoscaling" not in cluster.status


def test_a_scaler_that_wants_fewer_gets_them_when_it_has_had_its_time() -> None:
    cluster = hand_over("hpa")
    edit(cluster, "hpa", replicas=2)
    assert work(cluster, 299) == 8
    assert work(cluster, 301) == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(STRANGE_TIMES),
    st.dictionaries(NAMES, SCALARS | st.sampled_from(STRANGE_TIMES), max_size=3),
)
def test_whatever_stands_for_the_time_of_the_handover_no_plan_fails_and_the_count_is_not_kept_for_ever(
    at: str, garbage: dict[str, Any]
) -> None:
    cluster = hand_over("hpa")
    edit(cluster, "hpa", replicas=2)
    cluster.status["autoscaling"] = {"desiredReplicas": 8, "specReplicas": 2, "handedOverAt": at, **garbage}
    assert work(cluster, 10) >= 2
    assert work(cluster, 400) == 2


def test_a_scaler_that_never_begins_takes_nothing() -> None:
    cluster = hand_over("hpa")
    cluster.active_scaler = False
    assert work(cluster, 100_000) == 8


def test_the_way_back_keeps_the_count_too() -> None:
    cluster = hand_over("hpa")
    cluster.edit(make_spec(autoscaling={"provider": "builtin", "maxReplicas": 10}))
    assert present_count(cluster.snapshot()) == 8
    cluster.scaling = Scaling(8, None, Outlook(True, "FollowingSignals", ""))
    assert work(cluster) == 8
    cluster.scaling = None
    edit(cluster, "hpa", replicas=8)
    cluster.edit(make_spec(autoscaling={"provider": "builtin", "maxReplicas": 10}))
    assert present_count(cluster.snapshot()) == 8
