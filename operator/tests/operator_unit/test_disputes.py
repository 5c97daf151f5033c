"""Who changes our children back is named, and not written against for ever."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.builders import Owner, make_service_account
from llmendpoint_operator.core.disputes import (
    ATTEMPTS,
    CALM_SECONDS,
    FUTILE,
    LONGEST_HOLD_SECONDS,
    Dispute,
    dispute_cause,
    unheld,
    written,
)
from llmendpoint_operator.core.plan import Apply

from .fake_cluster import NOW, FakeCluster

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
