"""docs/contribute/contracts.md: requests of low priority that wait do not keep others out of a full queue."""

import pytest

from llmendpoint_server.core.queue import AGING_SECONDS
from llmendpoint_server.core.request import FinishReason, Priority
from llmendpoint_server.core.scheduler import Scheduler
from server.tests.core.arithmetic_model import Machine, finish_all, make_scheduler, request


def full_scheduler(*waiting: Priority, queued_tokens: int = 1000) -> Scheduler:
    """One request runs, and the queue is full of these. They have 4 tokens each and came one second after another."""
    scheduler = make_scheduler(
        pages=20,
        max_num_seqs=1,
        queue=len(waiting) if queued_tokens == 1000 else 99,
        queued_tokens=queued_tokens,
    )
    scheduler.add(request("runs", (1, 2), 3), seed=0)
    scheduler.schedule(0.0)
    for at, priority in enumerate(waiting):
        new = request(f"{priority.value} {at}", (1, 2, 3, 4), 3, arrival=float(at), priority=priority)
        assert scheduler.add(new, seed=0) == []
    return scheduler


def ends_of(
    scheduler: Scheduler, priority: Priority, arrival: float = 5.0, tokens: int = 4, n: int = 1
) -> list[tuple[str, int]]:
    """Whom a newcomer costs the place: itself, others, or nobody."""
    new = request("new", (1,) * tokens, 3, arrival=arrival, priority=priority, n=n)
    ends = scheduler.add(new, 0, arrival)
    assert all(end.finish is FinishReason.REJECTED for end in ends)
    assert all(1 <= end.retry_after <= 60 for end in ends)
    return [(end.id, end.index) for end in ends]


LOW, NORMAL, HIGH = Priority.LOW, Priority.NORMAL, Priority.HIGH


@pytest.mark.parametrize(
    ("waiting", "newcomer", "leaves"),
    [
        ((LOW, LOW, LOW), NORMAL, "low 2"),
        ((LOW, LOW, LOW), HIGH, "low 2"),
        ((LOW, NORMAL, NORMAL), HIGH, "low 0"),
        ((LOW, LOW, LOW), LOW, "new"),
        ((NORMAL, NORMAL), HIGH, "new"),
        ((HIGH, NORMAL), NORMAL, "new"),
    ],
)
def test_of_a_full_queue_the_last_low_one_leaves_for_a_newcomer_of_another_class(
    waiting: tuple[Priority, ...], newcomer: Priority, leaves: str
) -> None:
    scheduler = full_scheduler(*waiting)
    assert ends_of(scheduler, newcomer) == [(leaves, 0)]
    assert scheduler.waiting == len(waiting)
    assert scheduler.counters.refused_requests == 1
    ends = finish_all(scheduler, Machine(2))
    assert (leaves in ends) is False
    assert len(ends) == 1 + len(waiting)


def test_what_is_displaced_is_told_why() -> None:
    scheduler = full_scheduler(LOW)
    (end,) = scheduler.add(request("new", (1, 2)), seed=0)
    assert (end.id, end.detail) == ("low 0", "a request of a higher priority took its place")


def test_one_that_has_waited_so_long_that_it_is_next_keeps_its_place() -> None:
    assert ends_of(full_scheduler(LOW), NORMAL, arrival=AGING_SECONDS - 1) == [("low 0", 0)]
    assert ends_of(full_scheduler(LOW), NORMAL, arrival=AGING_SECONDS + 1) == [("new", 0)]


def test_as_many_leave_as_a_long_prompt_needs_and_none_if_that_is_not_enough() -> None:
    assert ends_of(full_scheduler(LOW, LOW, LOW, queued_tokens=12), NORMAL, tokens=7) == [
        ("low 2", 0), ("low 1", 0),
    ]  # fmt: skip
    scheduler = full_scheduler(NORMAL, LOW, LOW, queued_tokens=12)
    assert ends_of(scheduler, NORMAL, tokens=9) == [("new", 0)]
    assert scheduler.waiting == 3
    assert scheduler.counters.refused_tokens == 1


def test_all_answers_of_a_displaced_request_leave_and_room_is_made_for_all_of_the_newcomer() -> None:
    scheduler = full_scheduler(LOW, LOW, LOW)
    scheduler.abort("low 1")
    scheduler.abort("low 2")
    assert scheduler.add(request("two", (1, 2), 3, arrival=3.0, priority=LOW, n=2), seed=0) == []
    assert ends_of(scheduler, NORMAL) == [("two", 0), ("two", 1)]
    assert scheduler.waiting == 2
    assert ends_of(full_scheduler(LOW, LOW, LOW), NORMAL, n=2) == [("low 2", 0), ("low 1", 0)]


def test_a_low_one_that_has_begun_and_was_preempted_is_not_displaced() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=2, queue=0, caching=False), Machine(2)
    for name in "ab":
        scheduler.add(request(name, (1, 2), 14, priority=LOW), seed=0)
    while not scheduler.counters.preemptions:
        batch = scheduler.schedule(0.0)
        scheduler.update(batch, machine.run(batch), 0.0)
    scheduler.add(request("fills", (1, 2), arrival=1.0, priority=LOW), seed=0)
    (end,) = scheduler.add(request("new", (1, 2), arrival=5.0), seed=0)
    assert end.id == "new"
    assert finish_all(scheduler, machine).keys() >= {"a", "b"}


def test_a_newcomer_that_would_be_too_late_displaces_nobody() -> None:
    scheduler = full_scheduler(LOW)
    (end,) = scheduler.add(request("new", (1, 2), arrival=5.0, deadline=4.0), 0, 5.0)
    assert (end.id, end.finish) == ("new", FinishReason.EXPIRED)
    assert scheduler.waiting == 1
