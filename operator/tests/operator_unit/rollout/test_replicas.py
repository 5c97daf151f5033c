"""docs/concepts/rollouts.md: without room pods are exchanged in place by waves, with `minAvailable` ready, or one by one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from llmendpoint_operator.core.rollout.traffic import percentages

from ..room_stage import Small, SmallRooms


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


class InPlace(SmallRooms):
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

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.it.now += timedelta(seconds=seconds)


TestInPlace = InPlace.TestCase
TestInPlace.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
