"""docs/operate/troubleshooting.md: who changes a child back is named (`ChildContested`); the child is written ever more seldom."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from llmendpoint_operator.core.endpoint.disputes import (
    ATTEMPTS,
    CALM_SECONDS,
    FUTILE,
    LONGEST_HOLD_SECONDS,
    Dispute,
    dispute_cause,
    unheld,
    written,
)
from llmendpoint_operator.core.endpoint.plan import Apply
from llmendpoint_operator.core.pods.builders import make_service_account
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.kube.children import Children, Written
from llmendpoint_operator.observe.endpoint import disputes as contests
from llmendpoint_operator.observe.endpoint.disputes import Contests

from ..fake_cluster import NOW, FakeCluster

ACCOUNT = make_service_account(Owner("team-a", "chat", "uid-1"))
OTHER = {**ACCOUNT, "automountServiceAccountToken": True}
PLACE = ("ServiceAccount", "chat")


def fought(count: int, left: str | None = None) -> Dispute:
    dispute: Dispute | None = None
    for number in range(count):
        dispute = written(dispute, ACCOUNT, left, float(number))
    assert dispute is not None
    return dispute


@pytest.mark.parametrize(("left", "most"), [(None, ATTEMPTS), ("automountServiceAccountToken", FUTILE)])
def test_after_a_few_writes_of_the_same_the_next_is_held(left: str | None, most: int) -> None:
    assert not fought(most - 1, left).open
    dispute = fought(most, left)
    assert dispute.open
    assert list(unheld([Apply(ACCOUNT)], {PLACE: dispute}, most + 1.0)) == []
    assert list(unheld([Apply(OTHER)], {PLACE: dispute}, most + 1.0)) == [Apply(OTHER)]
    assert list(unheld([Apply(ACCOUNT)], {PLACE: dispute}, dispute.until)) == [Apply(ACCOUNT)]


def test_it_is_tried_again_ever_more_seldom() -> None:
    pauses = [fought(n).until - fought(n).at for n in range(ATTEMPTS, ATTEMPTS + 12)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1]
    assert pauses[-1] == LONGEST_HOLD_SECONDS


def test_something_else_to_write_or_a_long_calm_begins_the_count_anew() -> None:
    dispute = fought(ATTEMPTS + 3)
    assert written(dispute, OTHER, None, dispute.at + 1).count == 1
    assert written(dispute, ACCOUNT, None, dispute.at + CALM_SECONDS).count == 1
    assert written(dispute, ACCOUNT, None, dispute.at + CALM_SECONDS - 1).count > 1


def test_the_endpoint_says_who_changes_what_and_goes_on_serving() -> None:
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    now = NOW.timestamp()
    held = Dispute(*PLACE, wanted="x", count=ATTEMPTS, at=now, field="spec.x", by="manager 'argocd'")
    cluster.disputes = {PLACE: held}
    cluster.settle()
    degraded: dict[str, Any] = cluster.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildContested")
    for part in ("ServiceAccount chat", "spec.x", "argocd"):
        assert part in degraded["message"]
    assert cluster.condition("Ready")["status"] == "True"
    assert dispute_cause({}) is None


def test_what_is_held_is_told_so_that_the_dispute_is_not_taken_for_settled() -> None:
    cluster = FakeCluster()
    first = next(s for s in cluster.plan().steps if isinstance(s, Apply))
    place = first.manifest["kind"], first.manifest["metadata"]["name"]
    dispute: Dispute | None = None
    for _ in range(ATTEMPTS):
        dispute = written(dispute, first.manifest, None, NOW.timestamp())
    assert dispute is not None
    cluster.disputes = {place: dispute}
    plan = cluster.plan()
    assert first not in plan.steps
    assert place in plan.held


KEY = ("team-a", "chat")


class Clock:
    """The time that `contests` sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = NOW
        monkeypatch.setattr(contests, "datetime", self)

    def now(self, _zone: object) -> Any:
        return self.time


class ManagedByArgo:
    async def find(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"managedFields": [{"manager": "argocd"}]}}


def put_back(clock: Clock, known: Contests, seconds: float) -> bool:
    """Somebody changes the child, it is written if it is not held, and the pass after that finds nothing to do. Whether
    it was written."""
    clock.time += timedelta(seconds=seconds)
    steps = list(unheld([Apply(ACCOUNT)], known.of(KEY), clock.time.timestamp()))
    if steps:
        asyncio.run(known.wrote(KEY, ACCOUNT, Written(ACCOUNT, difference="automountServiceAccountToken")))
    known.settle(KEY, () if steps else [PLACE], clock.time)
    return bool(steps)


def test_a_controller_that_changes_each_write_back_is_held_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Contests(cast(Children, ManagedByArgo()))
    assert [put_back(clock, known, 0.03) for _ in range(10)] == [True] * ATTEMPTS + [False] * (10 - ATTEMPTS)
    assert "argocd" in known.of(KEY)[PLACE].by
    assert sum(put_back(clock, known, 0.5) for _ in range(2400)) <= 6, "in twenty minutes"


def test_edits_by_hand_that_are_minutes_apart_are_each_put_back_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, known = Clock(monkeypatch), Contests(cast(Children, ManagedByArgo()))
    assert all(put_back(clock, known, 120) for _ in range(10))
    assert not known.of(KEY)[PLACE].open
    known.settle(KEY, (), clock.time + timedelta(seconds=60))
    assert known.of(KEY) == {}


def test_the_same_status_is_not_written_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Contests(cast(Children, ManagedByArgo()))
    status, other = {"replicas": 1}, {"replicas": 2}
    for _ in range(1 + ATTEMPTS):
        assert known.status_held(KEY, status, clock.time) == 0
        known.wrote_status(KEY, status, clock.time)
        clock.time += timedelta(seconds=0.1)
    held = known.status_held(KEY, status, clock.time)
    assert held > 0
    assert known.status_held(KEY, other, clock.time) == 0, "what is new is written at once"
    assert known.status_held(KEY, status, clock.time + timedelta(seconds=held)) == 0


def test_a_status_that_changes_to_and_fro_is_not_taken_for_a_fight(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Contests(cast(Children, ManagedByArgo()))
    for number in range(20):
        assert known.status_held(KEY, {"replicas": number % 2}, clock.time) == 0
        known.wrote_status(KEY, {"replicas": number % 2}, clock.time)
