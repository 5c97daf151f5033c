"""A cluster without room: exchange in place by waves, or one after the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from llmendpoint_operator.core.rollout.traffic import percentages

from .fake_cluster import NOW, FakeCluster, make_spec

FULL = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class SmallCluster(FakeCluster):
    """With `room` for so many pods. Like Kubernetes it removes pods first that serve least."""

    room: int = 2

    def run_deployments(self) -> None:
        for pods in self.pods.values():
            pods.sort(key=lambda pod: (not ready(pod), waits(pod)))
        super().run_deployments()
        every = [pod for revision in sorted(self.pods) for pod in self.pods[revision]]
        placed = [pod for pod in every if len(pod["status"]["conditions"]) > 1 and not waits(pod)]
        free = self.room - len(placed)
        for pod in every:
            if any(pod is one for one in placed):
                continue
            del pod["status"]["conditions"][1:]
            fits, free = free > 0, free - 1
            pod["status"]["conditions"].append(
                {"type": "PodScheduled", "status": "True"} if fits else dict(FULL)
            )

    def make_ready(self, revision: str, count: int = 1000) -> None:
        pods = [pod for pod in self.pods.get(revision, []) if not waits(pod)]
        for pod in pods[:count]:
            pod["status"]["conditions"][0]["status"] = "True"

    @property
    def all_ready(self) -> int:
        return sum(self.ready(revision) for revision in self.pods)


def ready(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


def waits(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"]["conditions"])


class Small:
    """An endpoint that fills its cluster."""

    def __init__(self, replicas: int, **rollout: Any) -> None:
        self.replicas, self.rollout = replicas, {"observe": {"duration": 0}, **rollout}
        self.cluster = SmallCluster(self.spec(1))
        self.cluster.room = replicas
        self.now = NOW
        self.least = replicas
        self.cluster.settle(self.now)
        self.cluster.make_ready(self.cluster.target)
        self.cluster.settle(self.now)
        self.blue = str(self.cluster.active)

    def spec(self, seqs: int) -> Any:
        return make_spec(replicas=self.replicas, engine={"maxNumSeqs": seqs}, rollout=self.rollout)

    def edit(self, seqs: int = 2) -> str:
        self.cluster.edit(self.spec(seqs))
        self.work()
        return self.cluster.target

    def work(self, after: float = 0) -> str:
        self.now += timedelta(seconds=after)
        for _ in range(10):
            steps = self.cluster.plan(self.now).steps
            for step in steps:
                self.cluster.do(step)
                self.least = min(self.least, self.cluster.all_ready)
            if not steps:
                return self.cluster.state
        raise AssertionError("still writing")


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_a_full_cluster_is_exchanged_in_place_and_never_below_the_minimum(replicas: int) -> None:
    it = Small(replicas)
    green = it.edit()
    assert it.cluster.status["rollout"]["mode"] == "Surge"
    it.work(601)
    assert it.cluster.status["rollout"]["mode"] == "InPlace"
    shares = []
    for _ in range(replicas + 1):
        it.cluster.make_ready(green)
        it.work(1)
        shares.append(it.cluster.weights().get(green, 0))
    assert it.work(11) == "Idle"
    assert it.cluster.replicas() == {it.blue: 0, green: replicas}
    assert it.least >= min(1, replicas - max(1, replicas // 4))
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert replicas == 2 or it.least >= replicas - max(1, replicas // 4)


def test_in_place_weights_are_the_ready_pods() -> None:
    it = Small(4, capacity="InPlace")
    green = it.edit()
    it.cluster.make_ready(green)
    it.work(1)
    it.cluster.make_ready(green)
    it.work(1)
    ready_pods = {r: it.cluster.ready(r) for r in (it.blue, green)}
    assert it.cluster.weights() == percentages(ready_pods)


def test_replicas_that_are_added_after_an_exchange_in_place_are_of_the_new_revision() -> None:
    it = Small(4, capacity="InPlace", observe={"errorRate": {"max": 0.02}})
    green = it.edit()
    for _ in range(6):
        it.cluster.make_ready(green)
        it.work(1)
    assert it.cluster.state == "Observing"
    it.replicas, it.cluster.room = 8, 12
    it.cluster.edit(it.spec(2))
    assert it.work() == "Observing"
    assert it.cluster.replicas() == {it.blue: 0, green: 8}
    it.cluster.make_ready(green)
    it.work()
    assert it.cluster.weights() == {green: 100}


def test_a_replacement_that_never_gets_ready_gives_its_place_back() -> None:
    it = Small(1, strategy="Recreate")
    green = it.edit()
    assert it.cluster.replicas() == {it.blue: 0, green: 1}
    it.work(601)
    it.cluster.make_ready(it.blue)
    assert it.work(1) == "RolledBack"
    assert it.cluster.replicas() == {it.blue: 1, green: 0}
    assert it.cluster.status["rejected"]["reason"] == "ProgressDeadlineExceeded"


def test_a_minimum_that_leaves_nothing_to_exchange_ends_with_the_reason() -> None:
    it = Small(2, capacity="InPlace", minAvailable=2)
    green = it.edit()
    assert it.work(599) == "Provisioning"
    assert it.cluster.replicas() == {it.blue: 2, green: 1}
    it.work(2)
    assert it.cluster.status["rejected"]["reason"] == "ProgressDeadlineExceeded"
    assert "nvidia.com/gpu" in it.cluster.status["rejected"]["message"]


def test_capacity_surge_waits_for_room_and_takes_nobodys_place() -> None:
    it = Small(2, capacity="Surge")
    green = it.edit()
    it.work(100)
    assert it.cluster.replicas() == {it.blue: 2, green: 2}
    it.work(501)
    assert it.cluster.status["rejected"]["reason"] == "ProgressDeadlineExceeded"


@pytest.mark.parametrize("counts", [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 999}])
def test_percentages_sum_to_a_hundred_and_forget_nobody(counts: dict[str, int]) -> None:
    found = percentages(counts)
    assert sum(found.values()) == 100
    assert all(share >= 1 for share in found.values())


class InPlace(RuleBasedStateMachine):
    """Random edits, deaths and crashes in a full cluster. Time only goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Small(4, capacity="InPlace")

    def reconcile(self, stop_after: int = 1000) -> None:
        cluster = self.it.cluster
        for step in cluster.plan(self.it.now).steps[:stop_after]:
            before = cluster.all_ready
            cluster.do(step)
            assert cluster.all_ready >= min(before, 1), "the operator took the last ready pod"
            if cluster.weights():
                assert sum(cluster.weights().values()) == 100

    @rule(seqs=st.integers(1, 3))
    def edit_or_revert(self, seqs: int) -> None:
        self.it.cluster.edit(self.it.spec(seqs))

    @rule(pick=st.integers(0, 100), count=st.integers(1, 4))
    @precondition(lambda self: self.it.cluster.pods)
    def pods_become_ready(self, pick: int, count: int) -> None:
        revisions = sorted(self.it.cluster.pods)
        self.it.cluster.make_ready(revisions[pick % len(revisions)], count)

    @rule(pick=st.integers(0, 100))
    @precondition(lambda self: self.it.cluster.pods)
    def a_pod_dies(self, pick: int) -> None:
        revisions = sorted(self.it.cluster.pods)
        self.it.cluster.pods[revisions[pick % len(revisions)]].pop(0)
        self.it.cluster.run_deployments()

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.it.now += timedelta(seconds=seconds)

    @rule()
    def the_operator_works(self) -> None:
        self.reconcile()

    @rule(steps=st.integers(0, 6))
    def the_operator_dies_in_between(self, steps: int) -> None:
        self.reconcile(stop_after=steps)

    def teardown(self) -> None:
        cluster = self.it.cluster
        for _ in range(20):
            for _ in range(4):
                self.reconcile()
                for revision in list(cluster.pods):
                    cluster.make_ready(revision)
            self.it.now += timedelta(seconds=11)
        left = {r: n for r, n in cluster.replicas().items() if n}
        assert left == {cluster.active: 4}, f"{left} in {cluster.status['rollout']}"
        rejected = cluster.status.get("rejected", {}).get("revision")
        assert cluster.target in (cluster.active, rejected)


TestInPlace = InPlace.TestCase
TestInPlace.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
