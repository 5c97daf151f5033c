"""docs/concepts/rollouts.md: `capacity: Auto` waits for nodes that are to come, and never stops a single replica that answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from llmendpoint_operator.core.rollout.machine import GIVEN_UP, State
from llmendpoint_operator.core.rollout.prospects import Prospect, Told, read_events

from ..fake_cluster import NOW, make_spec
from ..room_stage import Small, SmallCluster, SmallRooms, ready, waits

COMES = Told(Prospect.COMING, "pod triggered scale-up: [{pool 1->2 (max: 5)}]", NOW)
COMES_NOT = Told(Prospect.NONE, "pod didn't trigger scale-up: 1 max node group size reached", NOW)


def say(it: Small, told: Told) -> None:
    """An autoscaler says the same of every pod."""
    it.cluster.told = {p["metadata"]["name"]: told for pods in it.cluster.pods.values() for p in pods}


def mode(it: Small) -> str:
    return str(it.cluster.status["rollout"]["mode"])


def test_a_single_replica_is_never_stopped_for_one_that_finds_no_node() -> None:
    it = Small(1)
    green = it.edit()
    for told in (Told(), COMES, COMES_NOT):
        say(it, told)
        for _ in range(4):
            it.work(700)
    assert it.cluster.replicas() == {it.blue: 1, green: 1}
    assert it.cluster.weights() == {it.blue: 100}
    assert "rejected" not in it.cluster.status
    assert it.least == 1
    degraded = it.cluster.condition("Degraded")
    assert degraded["reason"] == "Unschedulable"
    assert "add a node" in degraded["message"]
    assert "spec.rollout.capacity: Recreate" in degraded["message"]
    assert it.cluster.condition("Ready")["status"] == "True"
    it.cluster.room = 2
    it.cluster.run_deployments()
    it.cluster.make_ready(green)
    it.work()
    assert it.work(11) == "Idle"
    assert it.cluster.weights() == {green: 100}


def test_a_rollout_without_room_goes_on_by_what_the_spec_is_edited_to() -> None:
    it = Small(1)
    green = it.edit()
    it.rollout["capacity"] = "Recreate"
    it.cluster.edit(it.spec(2))
    it.work()
    assert mode(it) == "Recreate"
    assert it.cluster.replicas() == {it.blue: 0, green: 1}


def test_a_node_that_is_to_come_is_waited_for_beyond_every_deadline() -> None:
    it = Small(2)
    it.edit()
    say(it, COMES)
    it.work(1700)
    assert mode(it) == "Surge"
    assert it.cluster.condition("Progressing")["reason"] == "WaitingForNode"
    assert "max: 5" in it.cluster.condition("Progressing")["message"]
    assert it.cluster.condition("Degraded")["status"] == "False"
    assert it.cluster.condition("Stalled") == {}
    it.work(200)
    assert mode(it) == "InPlace", "a promise holds for half an hour"


@pytest.mark.parametrize("capacity", ["Auto", "Surge"])
def test_a_scheduling_gate_is_no_lack_of_room(capacity: str) -> None:
    it = Small(2, capacity=capacity)
    green = it.edit()
    for pods in it.cluster.pods.values():
        for pod in pods:
            if waits(pod):
                pod["status"]["conditions"][1] |= {"reason": "SchedulingGated", "message": "gated"}
    gated = it.cluster.pods[green]
    before = mode(it)
    it.now += timedelta(seconds=100_000)
    plan = it.cluster.plan(it.now)
    it.cluster.status = next((s.status for s in plan.steps if hasattr(s, "status")), it.cluster.status)
    assert mode(it) == before
    assert "rejected" not in it.cluster.status
    assert it.cluster.condition("Progressing")["reason"] == "SchedulingGated"
    assert it.cluster.pods[green] == gated


def test_where_no_node_comes_nothing_is_waited_for() -> None:
    it = Small(2)
    it.edit()
    say(it, COMES_NOT)
    it.work(1)
    assert mode(it) == "InPlace"


def test_nothing_is_decided_before_anybody_was_asked() -> None:
    it = Small(2)
    it.edit()
    it.cluster.unasked = True
    it.now += timedelta(seconds=700)
    assert it.cluster.plan(it.now).steps == ()


def test_broken_pods_make_room_for_those_that_repair_them() -> None:
    it = Small(1)
    it.cluster.pods[it.blue][0]["status"]["conditions"][0]["status"] = "False"
    green = it.edit()
    assert it.cluster.replicas() == {it.blue: 1, green: 1}
    it.work(601)
    assert it.cluster.replicas() == {it.blue: 0, green: 1}


def test_a_replica_that_is_unready_for_a_moment_is_not_given_up() -> None:
    it = Small(1)
    it.cluster.pods[it.blue][0]["status"]["conditions"][0] |= {
        "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    green = it.edit()
    say(it, COMES_NOT)
    it.work(59)
    assert it.cluster.replicas() == {it.blue: 1, green: 1}
    soon = it.cluster.plan(it.now).requeue_after
    assert soon is not None
    assert soon <= 60
    it.work(soon)
    assert it.cluster.replicas() == {it.blue: 0, green: 1}


def test_a_revision_that_waited_for_its_node_has_its_whole_deadline_to_load() -> None:
    it = Small(1)
    green = it.edit()
    say(it, COMES)
    it.work(900)
    it.cluster.room = 2
    it.cluster.run_deployments()
    it.work()
    assert it.cluster.state == "Warming"
    it.work(599)
    assert it.cluster.state == "Warming"
    it.work(2)
    assert it.cluster.status["rejected"]["revision"] == green


def test_a_first_revision_serves_with_its_first_ready_pod_whatever_the_others_wait_for() -> None:
    it = SmallCluster(make_spec(replicas=3))
    it.settle(NOW)
    assert it.state == "Warming"
    it.make_ready(it.target, 1)
    it.settle(NOW)
    assert it.active == it.target
    assert it.weights() == {it.target: 100}
    assert it.condition("Ready")["reason"] == "SomeReplicasReady"
    assert it.condition("Degraded")["reason"] == "Unschedulable"


def test_an_edit_that_comes_with_the_first_ready_pod_of_a_first_revision_keeps_it() -> None:
    it = SmallCluster(make_spec(replicas=2))
    it.settle(NOW)
    first = it.target
    it.make_ready(first, 1)
    it.edit(make_spec(replicas=2, engine={"maxNumSeqs": 2}))
    it.settle(NOW)
    assert it.active == first
    assert it.ready(first) == 1
    assert it.replicas()[first] == 2


def test_the_old_revision_is_kept_and_serves_again_when_the_new_one_is_lost_before_it_has_gone() -> None:
    it = Small(1, capacity="Auto", scaleDownDelay=10)
    it.cluster.room = 2
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "Draining"
    it.cluster.pods[green][0]["status"]["conditions"][0]["status"] = "False"
    it.work(11)
    assert it.cluster.ready(it.blue) == 1
    it.work(61)
    assert it.cluster.weights() == {it.blue: 100}
    assert it.least == 1


def test_a_volume_that_another_node_holds_is_the_cause_and_says_what_to_do() -> None:
    it = Small(1)
    it.cluster.room = 2
    green = it.edit()
    [pod] = it.cluster.pods[green]
    pod["spec"]["nodeName"] = "node-2"
    pod["status"] |= {"phase": "Pending", "containerStatuses": [
        {"name": "engine", "state": {"waiting": {"reason": "ContainerCreating"}}}]}  # fmt: skip
    said = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-1'
    told = read_events([event("FailedAttachVolume", "2026-01-01T00:00:01Z", "attachdetach-controller", said)])
    it.cluster.told = {pod["metadata"]["name"]: told}
    it.work()
    degraded = it.cluster.condition("Degraded")
    assert degraded["reason"] == "VolumeNotAttached"
    assert "Multi-Attach error" in degraded["message"]
    assert "ReadOnlyMany" in degraded["message"]
    assert it.cluster.replicas() == {it.blue: 1, green: 1}

    it.rollout["capacity"] = "Recreate"
    it.cluster.edit(it.spec(2))
    it.work()
    assert it.cluster.replicas() == {it.blue: 0, green: 1}


def event(reason: str, at: str, component: str = "cluster-autoscaler", message: str = "m") -> dict[str, Any]:
    return {"reason": reason, "lastTimestamp": at, "source": {"component": component}, "message": message}


@pytest.mark.parametrize(
    ("events", "prospect"),
    [
        ([], Prospect.SILENT),
        ([event("FailedScheduling", "2026-01-01T00:00:09Z", "default-scheduler")], Prospect.SILENT),
        ([event("TriggeredScaleUp", "2026-01-01T00:00:01Z")], Prospect.COMING),
        ([event("NotTriggerScaleUp", "2026-01-01T00:00:01Z")], Prospect.NONE),
        ([event("TriggeredScaleUp", "2026-01-01T00:00:01Z"), event("NotTriggerScaleUp", "2026-01-01T00:00:02Z")], Prospect.NONE),
        ([event("TriggeredScaleUp", "2026-01-01T00:00:03Z"), event("NotTriggerScaleUp", "2026-01-01T00:00:02Z")], Prospect.COMING),
        ([event("Nominated", "2026-01-01T00:00:01Z", "karpenter")], Prospect.COMING),
        ([event("FailedScheduling", "2026-01-01T00:00:01Z", "karpenter")], Prospect.NONE),
        ([{"reason": None}, {"reason": "TriggeredScaleUp", "lastTimestamp": "yesterday"}], Prospect.COMING),
    ],
)  # fmt: skip
def test_the_latest_word_of_an_autoscaler_holds(events: list[dict[str, Any]], prospect: Prospect) -> None:
    assert read_events(events).prospect is prospect
    assert read_events(events[::-1]).prospect is prospect


class AutoRoom(SmallRooms):
    """With words of autoscalers, and room that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Small(2, minAvailable=0)

    def reconcile(self, stop_after: int = 1000) -> None:
        cluster = self.it.cluster
        for step in cluster.plan(self.it.now).steps[:stop_after]:
            before = self.able()
            cluster.do(step)
            assert self.able() >= min(before, 1), "the operator took, or let go of, the last ready pod"

    def able(self) -> int:
        """Ready pods that answer or may come to: of revisions with requests, and of a rollout's two unless green was given
        up. No other revision gets requests, and its pods may hold the room of those that will."""
        status = self.it.cluster.status
        rollout = status["rollout"]
        able = {w["revision"] for w in status["traffic"]["weights"]} | {rollout["blue"]}
        if State(rollout["state"]) not in GIVEN_UP:
            able.add(rollout.get("green"))
        return sum(self.it.cluster.ready(revision) for revision in able)

    @rule(count=st.integers(1, 4))
    def scale(self, count: int) -> None:
        self.it.replicas = count
        self.edit_or_revert(self.it.cluster.spec.engine.max_num_seqs or 1)

    @rule(room=st.integers(1, 6))
    def nodes_come_and_go(self, room: int) -> None:
        """Only empty ones go."""
        placed = sum(not waits(pod) for pods in self.it.cluster.pods.values() for pod in pods)
        self.it.cluster.room = max(room, placed)
        self.it.cluster.run_deployments()

    @rule(told=st.sampled_from([Told(), COMES, COMES_NOT]))
    def an_autoscaler_speaks(self, told: Told) -> None:
        say(self.it, told)

    @rule(pick=st.integers(0, 100))
    @precondition(lambda self: self.it.cluster.all_ready)
    def a_pod_is_unready(self, pick: int) -> None:
        every = [pod for pods in self.it.cluster.pods.values() for pod in pods if ready(pod)]
        every[pick % len(every)]["status"]["conditions"][0]["status"] = "False"

    @rule(seconds=st.sampled_from([0, 1, 15, 61, 700]))
    def time_passes(self, seconds: int) -> None:
        self.it.now += timedelta(seconds=seconds)

    def teardown(self) -> None:
        self.it.cluster.room, self.it.cluster.told = 100, {}
        self.it.cluster.run_deployments()
        super().teardown()


def an_edit_while_blue_dies(it: AutoRoom) -> None:
    """Then there is room for one pod more."""
    it.edit_or_revert(seqs=3)
    it.a_pod_dies(pick=0)
    it.a_pod_dies(pick=0)
    it.nodes_come_and_go(room=3)


def an_edit_and_its_revert(it: AutoRoom) -> None:
    it.edit_or_revert(seqs=3)
    it.the_operator_works()
    it.edit_or_revert(seqs=1)
    it.the_operator_works()


def assert_only_blue_is_left(it: AutoRoom) -> None:
    left = {revision: count for revision, count in it.it.cluster.replicas().items() if count}
    assert left == {it.it.blue: 2}


@pytest.mark.parametrize("came_up_before", [False, True])
def test_a_revision_that_its_status_does_not_name_yet_gives_its_room_back_when_its_edit_is_reverted(
    came_up_before: bool,
) -> None:
    """Its operator died between its Deployment and the status. No request ever reaches it."""
    it = AutoRoom()
    if came_up_before:
        an_edit_and_its_revert(it)
        it.time_passes(seconds=700)
        it.the_operator_works()
    an_edit_while_blue_dies(it)
    it.the_operator_dies_in_between(steps=1)
    it.pods_become_ready(count=1, pick=1)
    assert it.it.cluster.all_ready == 1
    it.edit_or_revert(seqs=1)
    it.time_passes(seconds=15)
    it.the_operator_works()
    it.the_operator_works()
    assert_only_blue_is_left(it)


def test_a_revision_that_its_status_names_answers_though_its_edit_is_reverted() -> None:
    """The same, but the operator lives to write the status."""
    it = AutoRoom()
    an_edit_while_blue_dies(it)
    it.the_operator_works()
    green = it.it.cluster.target
    it.pods_become_ready(count=1, pick=1)
    it.edit_or_revert(seqs=1)
    it.the_operator_works()
    assert it.it.cluster.weights() == {green: 100}
    assert it.it.cluster.ready(green) == 1


def test_a_reverted_revision_is_not_kept_beyond_its_delay_where_the_old_one_dies_later() -> None:
    """It gets no requests, and blue's pods may need its room."""
    it = AutoRoom()
    it.nodes_come_and_go(room=6)
    an_edit_and_its_revert(it)
    it.a_pod_dies(pick=0)
    it.a_pod_dies(pick=0)
    it.pods_become_ready(count=1, pick=1)
    assert it.it.cluster.all_ready == 1
    it.time_passes(seconds=700)
    it.the_operator_works()
    assert_only_blue_is_left(it)


TestAutoRoom = AutoRoom.TestCase
TestAutoRoom.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
