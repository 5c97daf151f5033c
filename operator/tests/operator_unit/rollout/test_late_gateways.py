"""docs/concepts/rollouts.md: old pods stay while a Ready gateway may send to them; lost gateways are not waited for."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from llmendpoint_operator.core.rollout.wanted import find_wanted

from ..rollout_stage import Rollout
from ..room_stage import Small
from . import test_replicas as capacity


def late_gateway(it: Rollout, seqs: int) -> str:
    """A revision that gw-2 follows, and gw-1 does not."""
    green = it.edit(seqs)
    it.cluster.make_ready(green)
    it.work()
    it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
    it.work(11)
    return green


def test_pods_stay_at_rest_while_a_ready_gateway_still_sends_to_them() -> None:
    it = Rollout(scaleDownDelay=0, observe={"duration": 0})
    second = late_gateway(it, 2)
    assert it.cluster.state == "Draining"
    it.edit(3)
    assert it.edit(2) == second
    assert it.cluster.state == "Idle"
    assert it.work(600) == "Idle"
    assert it.cluster.weights() == {second: 100}
    assert it.cluster.replicas()[it.blue] == 2, "gw-1 sends to them"
    assert find_wanted(it.cluster.snapshot()) is not None, "the gateways are asked on"
    it.cluster.gateways_known = False
    it.work()
    assert it.cluster.replicas()[it.blue] == 2
    it.cluster.gateways_known = True
    it.cluster.follow()
    it.work()
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {second}
    assert find_wanted(it.cluster.snapshot()) is None


def test_old_pods_go_when_gateways_that_could_send_to_them_were_not_ready_for_long() -> None:
    it = Rollout(scaleDownDelay=0, observe={"duration": 0})
    second = late_gateway(it, 2)
    it.edit(3)
    assert it.edit(2) == second
    it.cluster.gateways_known = False
    it.work(600)
    assert it.cluster.replicas()[it.blue] == 2, "a gateway that restarts may still send to them"
    it.cluster.gateways_lost = True
    it.work()
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {second}


def test_an_observation_takes_nothing_for_good_because_the_gateways_are_lost() -> None:
    it = Rollout()
    late_gateway(it, 2)
    assert it.cluster.state == "Observing"
    it.cluster.gateways_known, it.cluster.gateways_lost = False, True
    assert it.work(20) == "Observing"


def test_the_last_pods_of_an_exchange_in_place_stay_until_every_gateway_has_left_them() -> None:
    it = Small(4, capacity="InPlace")
    it.cluster.gateways = {"gw-1": None, "gw-2": None}
    it.cluster.follow()
    green = it.edit()
    for _ in range(8):
        it.cluster.make_ready(green)
        it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
        it.work(11)
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.replicas() == {it.blue: 1, green: 4}
    it.cluster.follow()
    it.work()
    assert it.cluster.replicas() == {it.blue: 0, green: 4}
    it.cluster.make_ready(green)
    it.cluster.follow()
    assert it.work() == "Idle"


def test_pods_of_an_older_revision_in_an_exchange_in_place_stay_for_a_late_gateway_too() -> None:
    it = Small(4, capacity="InPlace")
    it.cluster.gateways = {"gw-1": None, "gw-2": None}
    it.cluster.follow()
    for seqs in (2, 3):
        green = it.edit(seqs)
        for _ in range(8):
            it.cluster.make_ready(green)
            it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
            it.work(11)
    assert it.cluster.replicas()[it.blue] == 1, "gw-1 follows the first assignment"
    for _ in range(8):
        it.cluster.make_ready(green)
        it.cluster.follow()
        it.work(11)
    assert it.cluster.weights() == {green: 100}
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {green}


class LateGateways(capacity.InPlace):
    """Exchanges in a full cluster whose gateways follow when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.it.cluster.gateways = {"gw-1": None, "gw-2": None}
        self.it.cluster.follow()
        self.epochs: dict[int | None, dict[str, int]] = {}

    def reconcile(self, stop_after: int = 1000) -> None:
        cluster = self.it.cluster
        for step in cluster.plan(self.it.now).steps[:stop_after]:
            had = cluster.replicas()
            cluster.do(step)
            if "traffic" in cluster.status:
                self.epochs[cluster.status["traffic"]["epoch"]] = cluster.weights()
            if cluster.state not in ("RollingBack", "RolledBack"):
                self.check_gateways(had)

    def check_gateways(self, had: dict[str, int]) -> None:
        left = {revision for revision, count in self.it.cluster.replicas().items() if count}
        for name, epoch in self.it.cluster.gateways.items():
            pods = {revision for revision in self.epochs.get(epoch, {}) if had.get(revision)}
            assert not pods or pods & left, f"{name} sends requests to {pods}, whose pods went"

    @rule(count=st.integers(1, 4))
    def waves_come_up(self, count: int) -> None:
        for _ in range(count):
            self.it.cluster.make_ready(self.it.cluster.status.get("targetRevision", ""))
            self.reconcile()
            self.reconcile()
            self.it.now += timedelta(seconds=11)

    @rule(name=st.sampled_from(["gw-1", "gw-2"]))
    def a_gateway_follows(self, name: str) -> None:
        self.it.cluster.gateways[name] = self.it.cluster.status.get("traffic", {}).get("epoch")

    def teardown(self) -> None:
        for _ in range(20):
            self.it.cluster.follow()
            for revision in list(self.it.cluster.pods):
                self.it.cluster.make_ready(revision)
            self.reconcile()
            self.it.now += timedelta(seconds=5)
        self.it.cluster.follow()
        super().teardown()


TestLateGateways = LateGateways.TestCase
TestLateGateways.settings = settings(capacity.TestInPlace.settings)
