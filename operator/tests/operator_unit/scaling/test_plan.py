"""docs/concepts/autoscaling.md: `status.autoscaling` is written before pods follow it, and a rollout has the scaler's number."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.plan import Plan, make_plan
from llmendpoint_operator.core.endpoint.snapshot import Snapshot
from llmendpoint_operator.core.endpoint.steps import Apply, WriteStatus
from llmendpoint_operator.core.scaling.outcome import Change, Outlook, Reason, Scaling
from llmendpoint_operator.core.scaling.records import first_memory, present_count, read_outlook
from llmendpoint_operator.core.scaling.scene import read_scene

from ..fake_cluster import AFTER_ALL, NOW, FakeCluster, make_spec
from ..scaling_stage import rules

FOLLOWS = Outlook(True, "FollowingSignals", "1 to 10 replicas", "", True)


class ScaledCluster(FakeCluster):
    """With a scaler whose word is `scaling`."""

    scaling: Scaling | None = None

    def snapshot(self, now: datetime = AFTER_ALL) -> Snapshot:
        plain = super().snapshot(now)
        return replace(plain, observed=replace(plain.observed, scaling=self.scaling))

    def scale(self, count: int, *, reason: Reason = Reason.SIGNALS) -> None:
        """The scaler decides on another count."""
        before = self.scaling.replicas if self.scaling else 1
        self.scaling = Scaling(count, Change(before, count, reason, "figures", NOW), FOLLOWS)


def serving(**fields: Any) -> ScaledCluster:
    """One ready replica, at rest."""
    cluster = ScaledCluster(make_spec(autoscaling={"maxReplicas": 10}, **fields))
    cluster.scaling = Scaling(1, None, FOLLOWS)
    cluster.settle()
    cluster.make_ready(cluster.target)
    for minutes in range(5):
        cluster.settle(NOW + timedelta(minutes=minutes))
    return cluster


def kinds(plan: Plan) -> list[str]:
    return [step.manifest["kind"] if isinstance(step, Apply) else type(step).__name__ for step in plan.steps]


def test_the_scalers_count_is_what_the_deployment_gets_and_not_spec_replicas() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    assert cluster.replicas() == {cluster.active: 4}
    assert cluster.spec.replicas == 1


def test_a_new_count_stands_in_the_status_before_anything_grows_by_it() -> None:
    cluster = serving()
    cluster.scale(4)
    assert kinds(cluster.plan()) == ["WriteStatus", "Deployment"]


def test_the_status_tells_the_last_change_with_its_figures_and_an_event_does() -> None:
    cluster = serving()
    cluster.scale(4)
    plan = cluster.reconcile()
    assert cluster.status["autoscaling"] == {
        "desiredReplicas": 4,
        "specReplicas": 1,
        "previousReplicas": 1,
        "lastScaledAt": "2026-01-01T00:00:00.000Z",
        "reason": "Signals",
        "message": "figures",
    }
    told = [event.reason for step in plan.steps if isinstance(step, WriteStatus) for event in step.events]
    assert told == ["ScaledUp"]


def test_a_count_that_holds_writes_nothing() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    assert cluster.plan().steps == ()
    cluster.scaling = Scaling(4, None, FOLLOWS)
    assert cluster.plan().steps == ()


def test_a_leader_without_figures_yet_writes_nothing() -> None:
    cluster = serving()
    cluster.scaling = Scaling(1, None, read_outlook(cluster.status))
    assert cluster.plan().steps == ()


def test_a_scaler_that_is_taken_out_of_the_spec_leaves_nothing_in_the_status() -> None:
    cluster = serving()
    cluster.scaling = None
    cluster.edit(make_spec())
    cluster.settle()
    assert "autoscaling" not in cluster.status
    assert not cluster.condition("Scaling")


def test_an_endpoint_at_zero_is_ready_and_says_what_the_next_request_does() -> None:
    cluster = serving()
    cluster.scale(0, reason=Reason.IDLE)
    cluster.settle()
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")
    assert "next request" in ready["message"]
    assert not cluster.condition("Reconciling")


@pytest.mark.parametrize(
    "outlook",
    [
        FOLLOWS,
        Outlook(True, "AtMaximum", "raise it", "gateways that tell nothing: gw-1", True),
        Outlook(False, "NoFigures", "nobody tells", "nobody tells; see", False),
    ],
)
def test_what_the_conditions_say_is_what_the_next_leader_reads(outlook: Outlook) -> None:
    cluster = serving()
    cluster.scaling = Scaling(1, None, outlook)
    cluster.settle()
    assert read_outlook(cluster.status) == outlook


def test_green_follows_the_scalers_count_until_the_switch_and_blue_keeps_its_own_after_it() -> None:
    cluster = serving(rollout={"promotion": "Manual", "observe": {"duration": 600}})
    blue = cluster.active
    cluster.edit(make_spec(**{**_fields(cluster), "engine": {"maxNumSeqs": 4}}))
    cluster.settle()
    green = cluster.target
    cluster.scale(3)
    cluster.settle()
    assert cluster.replicas() == {blue: 3, green: 3}
    cluster.make_ready(green)
    cluster.make_ready(blue or "")
    cluster.edit(
        make_spec(
            **{
                **_fields(cluster),
                "engine": {"maxNumSeqs": 4},
                "rollout": {"promotion": "Auto", "observe": {"duration": 600}},
            }
        )
    )
    cluster.settle()
    assert cluster.active == green
    cluster.scale(5)
    cluster.settle()
    assert cluster.replicas() == {blue: 3, green: 5}


def _fields(cluster: ScaledCluster) -> dict[str, Any]:
    return cluster.spec.model_dump(by_alias=True, exclude_defaults=True, exclude={"model"})


def test_a_new_revision_of_an_endpoint_at_zero_is_verified_and_zero_again() -> None:
    cluster = serving()
    cluster.scale(0)
    cluster.settle()
    cluster.edit(make_spec(autoscaling={"maxReplicas": 10}, engine={"maxNumSeqs": 4}))
    cluster.settle()
    green = cluster.target
    assert cluster.replicas()[green] == 1
    cluster.make_ready(green)
    for minutes in range(5):
        cluster.settle(NOW + timedelta(minutes=minutes))
    assert cluster.active == green
    assert set(cluster.replicas().values()) == {0}


# --- what a new leader reads


def test_the_count_that_holds_is_what_was_last_decided() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    assert present_count(cluster.snapshot()) == 4


def test_a_spec_replicas_that_was_changed_since_holds_in_its_place() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    cluster.edit(cluster.spec.model_copy(update={"replicas": 7}))
    assert present_count(cluster.snapshot()) == 7


def test_after_a_lost_status_the_active_deployments_count_holds() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    active = cluster.status["activeRevision"]
    cluster.status = {"activeRevision": active}
    assert present_count(cluster.snapshot()) == 4


def test_the_last_change_counts_for_the_rate_limits_of_a_new_leader() -> None:
    cluster = serving()
    cluster.scale(4)
    cluster.settle()
    memory = first_memory(cluster.status["autoscaling"], 4, NOW)
    assert memory.changes == ((NOW, 3),)
    assert memory.recommendations == ((NOW, 4),)


def test_only_replicas_that_get_requests_are_on_the_scene() -> None:
    cluster = serving(rollout={"promotion": "Manual"})
    cluster.edit(make_spec(**{**_fields(cluster), "engine": {"maxNumSeqs": 4}}))
    cluster.settle()
    cluster.make_ready(cluster.target)
    scene = read_scene(cluster.snapshot(), rules(), 1, NOW)
    assert len(scene.ready) == 1
    assert not scene.loading


def test_a_replica_has_its_time_to_load_and_another_to_find_a_node() -> None:
    cluster = serving()
    cluster.scale(2)
    cluster.settle()
    pod = next(p for p in cluster.pods[cluster.target] if p["status"]["conditions"][0]["status"] == "False")
    snapshot = cluster.snapshot()
    pod["status"]["startTime"] = "2026-01-01T00:00:00Z"
    assert read_scene(snapshot, rules(), 2, NOW + timedelta(seconds=599)).loading
    assert not read_scene(snapshot, rules(), 2, NOW + timedelta(seconds=600)).loading
    no_node = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod["status"]["conditions"].append(no_node)
    assert read_scene(snapshot, rules(), 2, NOW + timedelta(seconds=29)).loading
    assert not read_scene(snapshot, rules(), 2, NOW + timedelta(seconds=30)).loading


def test_the_plan_of_a_deleted_endpoint_is_empty_with_a_scaler_too() -> None:
    cluster = serving()
    cluster.deleting = True
    cluster.scale(5)
    assert make_plan(cluster.snapshot(), NOW).steps == ()
