"""docs/contribute/contracts.md: the pods with the fewest requests are drained, acknowledged and annotated before a scale-down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Observed, Snapshot
from llmendpoint_operator.core.endpoint.steps import Apply
from llmendpoint_operator.core.rollout.evidence import Evidence, GatewayView
from llmendpoint_operator.core.scaling.scaledown import (
    COST,
    COST_ANNOTATION,
    ScaleDown,
    cost_steps,
    plan_scale_down,
)

from ..fake_cluster import NOW, make_spec

REVISION = "r1"
ANNOTATION = {COST_ANNOTATION: COST}


def pod(name: str, *, ready: bool = True, ending: bool = False, made: int = 0) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team-a",
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:{made:02d}:00Z",
    }
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"metadata": metadata, "status": {"phase": "Running", "conditions": [condition]}}


@dataclass
class Scene:
    """One revision with pods a, b, c, … and two gateways that know them."""

    pods: list[dict[str, Any]]
    live: int
    load: dict[str, int] = field(default_factory=dict)
    gateways: int = 2
    heard: bool = True
    lost: bool = False
    acknowledged: int = 0
    epoch: int = 1
    draining: tuple[str, ...] = ()
    since: str | None = None

    def snapshot(self) -> Snapshot:
        views = tuple(
            GatewayView(f"gw-{i}", self.acknowledged, self.load if i == 0 else dict.fromkeys(self.load, 0))
            for i in range(self.gateways)
        )
        evidence = Evidence(
            gateways=views if self.heard else (), gateways_known=self.heard, gateways_lost=self.lost
        )
        traffic = {"epoch": self.epoch, "draining": list(self.draining), "drainingSince": self.since}
        endpoint = Endpoint(
            "team-a", "chat", "uid-1", 1, "1", False, make_spec(), status={"traffic": traffic}
        )
        deployment = {"spec": {"replicas": self.live}}
        return Snapshot(
            endpoint,
            None,
            deployments={REVISION: deployment},
            pods={REVISION: tuple(self.pods)},
            observed=Observed(evidence),
        )

    def plan(self, wanted: int, share: int = 100, later: float = 0.0) -> ScaleDown:
        return plan_scale_down(
            self.snapshot(), {REVISION: wanted}, {REVISION: share}, NOW + timedelta(seconds=later)
        )

    def costs(self, decision: ScaleDown) -> dict[str, dict[str, str]]:
        steps = [step for step in cost_steps(self.snapshot(), decision) if isinstance(step, Apply)]
        return {s.manifest["metadata"]["name"]: s.manifest["metadata"].get("annotations", {}) for s in steps}

    def written(self, decision: ScaleDown) -> None:
        """The status as the plan writes it: the epoch moves with the list."""
        if decision.draining != self.draining:
            self.draining, self.epoch = decision.draining, self.epoch + 1
            since = decision.draining_since
            self.since = since.isoformat() if since else None


def four_busy_and_one_idle() -> Scene:
    load = {"a": 5, "b": 0, "c": 6, "d": 7}
    return Scene([pod(name, made=i) for i, name in enumerate("abcd")], 4, load)


def test_the_idle_one_of_four_goes_and_only_after_every_gateway_left_it() -> None:
    scene = four_busy_and_one_idle()
    first = scene.plan(3)
    assert (first.draining, dict(first.replicas), first.asks_gateways) == (("b",), {REVISION: 4}, True)
    assert scene.costs(first) == {}
    scene.written(first)
    waiting = scene.plan(3)
    assert (waiting.draining, dict(waiting.replicas)) == (("b",), {REVISION: 4})
    scene.acknowledged = scene.epoch
    last = scene.plan(3)
    assert (last.draining, dict(last.replicas), last.asks_gateways) == (("b",), {REVISION: 3}, False)
    assert scene.costs(last) == {"b": ANNOTATION}


def test_the_event_names_the_pod_and_the_numbers() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.acknowledged = scene.epoch
    [step] = cost_steps(scene.snapshot(), scene.plan(3))
    assert step.event is not None
    assert (
        step.event.message
        == "replica b is removed, with 0 requests in flight; the least busy of the others has 5"
    )


def test_the_annotation_names_the_pods_uid_so_that_a_gone_pod_is_not_made_anew() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.acknowledged = scene.epoch
    [step] = cost_steps(scene.snapshot(), scene.plan(3))
    assert isinstance(step, Apply)
    assert step.manifest["metadata"]["uid"] == "uid-b"


def test_requests_are_summed_over_gateways() -> None:
    views = (GatewayView("gw-0", 1, {"a": 1, "b": 2}), GatewayView("gw-1", 1, {"a": 4, "b": 0}))
    scene = Scene([pod("a"), pod("b")], 2)
    snapshot = scene.snapshot()
    evidence = Evidence(gateways=views, gateways_known=True)
    moved = replace(snapshot, observed=Observed(evidence))
    assert plan_scale_down(moved, {REVISION: 1}, {REVISION: 100}, NOW).draining == ("b",)


def test_nobody_is_chosen_before_the_gateways_were_asked() -> None:
    scene = four_busy_and_one_idle()
    scene.heard = False
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas), decision.asks_gateways) == ((), {REVISION: 4}, True)
    assert decision.requeue_after


def test_gateways_that_were_not_ready_for_long_hold_nothing_up() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.heard, scene.lost = False, True
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas), decision.asks_gateways) == ((), {REVISION: 3}, False)


def test_a_restarted_operator_keeps_what_is_drained_until_it_has_heard_the_gateways() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.heard = False
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas)) == (("b",), {REVISION: 4})


def test_a_gateway_that_does_not_answer_is_waited_for_ten_seconds() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    assert scene.plan(3, later=9.9).replicas == {REVISION: 4}
    assert scene.plan(3, later=10).replicas == {REVISION: 3}


def test_without_a_gateway_it_goes_straight() -> None:
    scene = four_busy_and_one_idle()
    scene.gateways = 0
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas), decision.asks_gateways) == ((), {REVISION: 3}, False)


def test_a_loading_pod_is_no_idle_one_and_goes_before_any_that_serves() -> None:
    scene = Scene([pod("a"), pod("b"), pod("c"), pod("d", ready=False)], 4, {"a": 1, "b": 2, "c": 3})
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas)) == ((), {REVISION: 3})
    fewer = scene.plan(2)
    assert (fewer.draining, dict(fewer.replicas)) == (("a",), {REVISION: 4})


def test_a_pod_that_no_gateway_knows_is_not_taken_for_idle() -> None:
    scene = Scene([pod("a"), pod("b")], 2, {"a": 9})
    assert scene.plan(1).draining == ("a",)


def test_all_pods_go_at_once_when_none_is_wanted() -> None:
    decision = four_busy_and_one_idle().plan(0)
    assert (decision.draining, dict(decision.replicas)) == ((), {REVISION: 0})


def test_a_revision_without_requests_shrinks_at_once() -> None:
    assert four_busy_and_one_idle().plan(1, share=0).replicas == {REVISION: 1}


def test_a_pod_stays_listed_until_it_is_gone() -> None:
    scene = four_busy_and_one_idle()
    scene.live, scene.draining = 3, ("b",)
    scene.pods[1] = pod("b", ending=True)
    assert scene.plan(3).draining == ("b",)
    del scene.pods[1]
    assert scene.plan(3).draining == ()


def test_scaling_up_again_in_between_gives_the_pod_back() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.pods[1]["metadata"]["annotations"] = dict(ANNOTATION)
    decision = scene.plan(4)
    assert (decision.draining, dict(decision.replicas)) == ((), {REVISION: 4})
    assert scene.costs(decision) == {"b": {}}, (
        "an annotation left behind would choose the wrong pod next time"
    )


def test_what_was_chosen_stays_chosen_while_its_requests_end() -> None:
    scene = four_busy_and_one_idle()
    scene.written(scene.plan(3))
    scene.load = {"a": 0, "b": 1, "c": 0, "d": 0}
    assert scene.plan(3).draining == ("b",)
    assert scene.plan(2).draining == ("b", "d"), "b as before, and of three idle ones the newest"


def test_a_settled_scale_down_writes_nothing_more() -> None:
    scene = Scene([pod(name) for name in "acd"], 3, {"a": 5, "c": 6, "d": 7})
    decision = scene.plan(3)
    assert (decision.draining, dict(decision.replicas), decision.asks_gateways) == ((), {REVISION: 3}, False)
    assert scene.costs(decision) == {}


@given(
    load=st.lists(st.integers(0, 20), min_size=2, max_size=8),
    wanted=st.integers(1, 7),
    crashes=st.lists(st.booleans(), min_size=4, max_size=4),
    unready=st.integers(0, 2),
)
def test_a_deployment_shrinks_only_when_those_that_go_are_drained_acknowledged_and_annotated(
    load: list[int], wanted: int, crashes: list[bool], unready: int
) -> None:
    names = [f"p{i}" for i in range(len(load))]
    loading = [pod(f"x{i}", ready=False) for i in range(unready)]
    scene = Scene([*map(pod, names), *loading], len(load) + unready, dict(zip(names, load, strict=True)))
    least = sorted(load)[: max(0, len(load) - wanted)]
    for crash in crashes:
        decision = scene.plan(wanted)
        scene.written(decision)
        if crash:
            continue
        for name, wanted_notes in scene.costs(decision).items():
            next(p for p in scene.pods if p["metadata"]["name"] == name)["metadata"]["annotations"] = (
                wanted_notes
            )
        if decision.replicas[REVISION] < scene.live:
            assert scene.acknowledged >= scene.epoch or not least
            marked = [
                p["metadata"]["name"] for p in scene.pods if p["metadata"].get("annotations") == ANNOTATION
            ]
            assert sorted(scene.load[name] for name in marked) == least
            assert set(marked) == set(scene.draining)
            return
        scene.acknowledged = scene.epoch
    if wanted < len(load) and sum(not crash for crash in crashes) >= 3:
        pytest.fail("it never shrank")
