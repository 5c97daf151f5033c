"""docs/contribute/contracts.md: whatever stands in a status, a plan can be made, and what cannot be true is gone after a few writes."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmendpoint_operator.core.endpoint import reported
from llmendpoint_operator.core.endpoint.plan import WriteStatus
from llmendpoint_operator.core.endpoint.reported import read_fields
from llmendpoint_operator.core.times import parse_time

from ..fake_cluster import NOW, FakeCluster, make_spec

MOST_WRITES = 40
LATE = NOW + timedelta(hours=1)


def serving(replicas: int = 2) -> FakeCluster:
    """An endpoint at rest whose pods are ready."""
    cluster = FakeCluster(spec=make_spec(replicas=replicas))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    assert cluster.active == cluster.target
    return cluster


STRANGE_TIMES = [
    "0000-01-01T00:00:00Z", "2026-01-01T23:59:60Z", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00",
    "9999-12-31T00:00:00Z", "soon", "",
]  # fmt: skip
WORDS = st.sampled_from(
    ["Idle", "Observing", "Draining", "Switching", "RollingBack", "RolledBack", "Surge", "InPlace", "Recreate",
     "nonsense", "", "True", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
     "0000-01-01T00:00:00Z", "2026-01-01T23:59:60Z", "0001-01-01T00:00:00+10:00", "<own>", "<pod>"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 120) | WORDS
NAMES = st.sampled_from(
    ["epoch", "weights", "draining", "drainingSince", "revision", "weight", "state", "blue", "green", "mode", "step",
     "startedAt", "stateSince", "progressSince", "verified", "promoted", "baseline", "requests", "errors", "message",
     "reason", "at", "inputs", "salt", "id", "action", "outcome", "desiredReplicas", "specReplicas", "type", "status",
     "lastTransitionTime", "handedOverAt", "lastScaledAt", "switchedAt", "name"]
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=12
)  # fmt: skip
TOP = st.sampled_from(
    ["observedGeneration", "activeRevision", "targetRevision", "switchedAt", "traffic", "rollout", "model", "rejected",
     "request", "override", "autoscaling", "replicas", "selector", "revisions", "paths", "url", "capacity", "conditions", "x"]
)  # fmt: skip


def filled(value: Any, own: str, pod: str) -> Any:
    """With a revision and a pod that there are."""
    if isinstance(value, dict):
        return {key: filled(item, own, pod) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, own, pod) for item in value]
    return {"<own>": own, "<pod>": pod}.get(value, value) if isinstance(value, str) else value


def rest(cluster: FakeCluster) -> int:
    """Writes until nothing is left to do, with pods that become ready and time that goes on."""
    writes = 0
    for step in range(40):
        cluster.make_ready(cluster.target if "targetRevision" in cluster.status else "")
        steps = cluster.reconcile(LATE + timedelta(minutes=step)).steps
        for hash_ in list(cluster.pods):
            cluster.make_ready(hash_)
        writes += len(steps)
        if not steps:
            return writes
    raise AssertionError("it writes for ever")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TOP, ANYTHING, max_size=6), st.booleans())
def test_any_status_is_planned_from_and_comes_to_rest(garbage: dict[str, Any], over: bool) -> None:
    cluster = serving()
    own, pod = cluster.target, cluster.pods[cluster.target][0]["metadata"]["name"]
    cluster.status = (cluster.status if over else {}) | filled(garbage, own, pod)
    assert rest(cluster) <= MOST_WRITES
    assert cluster.active == own
    assert cluster.weights() == {own: 100}
    assert cluster.condition("Ready")["status"] == "True"


def test_every_time_of_the_status_is_looked_at() -> None:
    assert {
        "switchedAt", "drainingSince", "startedAt", "stateSince", "progressSince", "at", "lastScaledAt",
        "lastTransitionTime", "handedOverAt",
    } <= reported._TIMES  # fmt: skip


@pytest.mark.parametrize("text", STRANGE_TIMES[:4] + STRANGE_TIMES[5:])
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_time(text) is None


PARTS: dict[str, Any] = {
    "draining pods that are not there": {"traffic": {"draining": ["a1-old-gone"]}},
    "an epoch below zero": {"traffic": {"epoch": -5}},
    "an epoch that nothing is above": {"traffic": {"epoch": 2**63 - 1}},
    "weights of a revision that is not there": {"traffic": {"weights": [{"revision": "nope", "weight": 100}]}},
    "weights that are no hundred": {"traffic": {"weights": []}},
    "an active revision that is not there": {"activeRevision": "nope"},
    "a rejected revision that is not there": {"rejected": {"revision": "nope", "reason": "X", "message": "m", "at": "2026-01-01T00:00:00Z"}},
    "an override of another spec": {"override": {"inputs": "nope", "revision": "nope"}},
    "a time that is none": {"rollout": {"state": "Draining", "stateSince": "soon"}},
    "a time to come": {"rollout": {"state": "Observing", "stateSince": "2099-01-01T00:00:00Z"}},
    "a green that is not there": {"rollout": {"state": "Observing", "green": "nope", "mode": "Surge"}},
    "conditions without a time": {"conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_what_cannot_be_true_is_removed_and_requests_go_where_they_went(part: dict[str, Any]) -> None:
    cluster = serving()
    own, epoch = cluster.target, cluster.status["traffic"]["epoch"]
    before = copy.deepcopy(cluster.status)
    for name, value in part.items():
        merged = {**before[name], **value} if isinstance(value, dict) and name in before else value
        cluster.status = {**before, name: merged}
    assert rest(cluster) <= 4
    after = cluster.status
    assert cluster.weights() == {own: 100}
    assert "draining" not in after["traffic"]
    assert 0 < after["traffic"]["epoch"] < 2**53
    assert after["traffic"]["epoch"] >= epoch or part.get("traffic", {}).get("epoch", 0) < 0
    assert after["rollout"] == before["rollout"]
    assert {"rejected", "override"}.isdisjoint(after)


def test_pods_that_answer_are_never_all_drained_whatever_the_status_says() -> None:
    """Not while the gateways are unknown either, which holds a scale-down up."""
    cluster = serving(3)
    cluster.gateways_known = False
    names = [pod["metadata"]["name"] for pod in cluster.pods[cluster.target]]
    cluster.status = {**cluster.status, "traffic": {**cluster.status["traffic"], "draining": names}}
    cluster.edit(make_spec(replicas=1))
    cluster.reconcile(LATE)
    assert set(cluster.status["traffic"].get("draining", ())) < set(names)


def test_the_whole_status_is_written_so_that_what_others_added_goes() -> None:
    cluster = serving()
    plain = copy.deepcopy(cluster.status)
    cluster.status = {**cluster.status, "x": {"y": 1}}
    [step] = cluster.reconcile(NOW).steps
    assert isinstance(step, WriteStatus)
    assert cluster.status == plain


def test_a_sound_status_is_read_as_it_is() -> None:
    cluster = serving()
    assert read_fields(cluster.status, NOW) == cluster.status
