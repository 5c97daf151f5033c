"""docs/guides/embeddings.md: every input gets its vector once, small requests do not wait for large ones, and bounds hold."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_server.core.pooling.padding import MOST_PADDED, passes
from llmendpoint_server.core.pooling.request import Input, PoolingRequest
from llmendpoint_server.core.pooling.scheduler import PoolingConfig, PoolingScheduler, StepResult
from llmendpoint_server.core.request import FinishReason, Priority
from llmendpoint_server.errors import InvalidRequest

STEP = 100
MOST = 8
SECONDS = 0.01
"""of a token"""


def scheduler(requests: int = 8, tokens: int = 10_000) -> PoolingScheduler:
    return PoolingScheduler(PoolingConfig(STEP, 50, MOST, STEP, requests, tokens))


def request(name: str, lengths: list[int], at: float = 0.0, **more: object) -> PoolingRequest:
    return PoolingRequest(name, tuple(Input((1,) * length) for length in lengths), at, **more)  # type: ignore[arg-type]


class Clocked:
    """A scheduler whose tokens take SECONDS each."""

    def __init__(self, **bounds: int) -> None:
        self.scheduler, self.now = scheduler(**bounds), 0.0
        self.ends: dict[str, FinishReason] = {}

    def step(self) -> StepResult:
        batch = self.scheduler.schedule(self.now)
        self.now += SECONDS * sum(len(row.input.tokens) for row in batch.rows)
        result = self.scheduler.update(batch, [b"v"] * len(batch.rows), self.now)
        for end in result.ends:
            assert end.finish is not None
            self.ends[end.id] = end.finish
        return result


@given(st.lists(st.integers(1, 300), max_size=40), st.integers(1, 1000))
def test_passes_hold_each_input_once_and_little_padding(lengths: list[int], most: int) -> None:
    found = passes(lengths, most)
    assert sorted(place for one in found for place in one) == list(range(len(lengths)))
    for one in found:
        own, longest = sum(lengths[place] for place in one), max(lengths[place] for place in one)
        assert len(one) == 1 or len(one) * longest <= min(MOST_PADDED * own, most)


def test_a_step_takes_whole_inputs_within_its_budget_and_one_that_is_longer_alone() -> None:
    clocked = Clocked()
    clocked.scheduler.add(request("a", [60, 40, 30, 100, 1]), 0.0)
    sizes = [[len(row.input.tokens) for row in clocked.scheduler.schedule(0.0).rows] for _ in range(3)]
    assert sizes == [[60, 40], [30], [100]]


def test_a_small_request_does_not_wait_for_a_large_one() -> None:
    clocked = Clocked()
    clocked.scheduler.add(request("large", [50] * 100), 0.0)
    for _ in range(5):
        clocked.step()  # five seconds of work
    clocked.scheduler.add(request("small", [50], clocked.now), clocked.now)
    clocked.step()
    clocked.step()
    assert clocked.ends == {"small": FinishReason.STOP}


def test_equal_requests_share_the_steps() -> None:
    clocked = Clocked()
    for name in "ab":
        clocked.scheduler.add(request(name, [50] * 20), 0.0)
    vectors: Counter[str] = Counter()
    for _ in range(10):
        vectors.update(vector.id for vector in clocked.step().vectors)
    assert abs(vectors["a"] - vectors["b"]) <= 2


def test_a_low_request_waits_while_others_have_waited_less_than_its_lag() -> None:
    clocked = Clocked()
    clocked.scheduler.add(request("low", [50] * 20, 0.0, priority=Priority.LOW), 0.0)
    clocked.scheduler.add(request("normal", [50] * 20, 1.0), 1.0)
    while "normal" not in clocked.ends:
        clocked.step()
    assert "low" not in clocked.ends
    while not clocked.scheduler.idle:
        clocked.step()
    assert clocked.ends["low"] is FinishReason.STOP


def test_a_full_queue_refuses_with_the_time_that_its_work_takes() -> None:
    clocked = Clocked(requests=1)
    clocked.scheduler.add(request("a", [100] * 50), 0.0)
    clocked.step()
    for name in range(MOST):  # as many as the batch has free places, and one
        assert clocked.scheduler.add(request(str(name), [100], 1.0), 1.0) == []
    [refused] = clocked.scheduler.add(request("more", [1], 1.0), 1.0)
    assert refused.finish is FinishReason.REJECTED
    assert "--max-queued-requests" in refused.detail
    assert refused.retry_after == pytest.approx(49 + 1)
    assert clocked.scheduler.counters.refused_requests == 1


def test_too_many_waiting_tokens_are_refused_but_one_request_may_wait_alone() -> None:
    one = scheduler(tokens=100)
    assert one.add(request("a", [100] * 5), 0.0) == []
    [refused] = one.add(request("b", [10]), 0.0)
    assert "--max-queued-tokens" in refused.detail


def test_a_low_request_leaves_for_one_that_is_not() -> None:
    one = scheduler(tokens=100)
    one.add(request("low", [90], priority=Priority.LOW), 0.0)
    [displaced] = one.add(request("b", [90]), 0.0)
    assert (displaced.id, displaced.finish) == ("low", FinishReason.REJECTED)


def test_a_deadline_that_the_work_ahead_passes_is_refused_and_one_that_passes_while_it_waits_ends() -> None:
    clocked = Clocked()
    clocked.scheduler.add(request("a", [100] * 50), 0.0)
    clocked.step()
    low = Priority.LOW
    [late] = clocked.scheduler.add(request("b", [1], 1.0, deadline=5.0, priority=low), 1.0)
    assert late.finish is FinishReason.EXPIRED
    assert "deadline" in late.detail
    assert clocked.scheduler.add(request("c", [1], 1.0, deadline=50.0, priority=low), 1.0) == []
    assert [end.id for end in clocked.scheduler.expire(51.0)] == ["c"]


def test_what_is_no_number_fails_its_request_alone() -> None:
    one = scheduler()
    one.add(request("bad", [5, 5]), 0.0)
    one.add(request("good", [5]), 0.0)
    batch = one.schedule(0.0)
    result = one.update(batch, [None if row.member.request.id == "bad" else b"v" for row in batch.rows], 1.0)
    assert {end.id: end.finish for end in result.ends} == {
        "bad": FinishReason.FAILED,
        "good": FinishReason.STOP,
    }
    assert one.idle


@pytest.mark.parametrize("tokens", [(), (1,) * (STEP + 1), (50,), (-1,)])
def test_an_input_outside_the_models_bounds_fails_alone(tokens: tuple[int, ...]) -> None:
    one = scheduler()
    [end] = one.add(PoolingRequest("a", (Input((1,)), Input(tokens))), 0.0)
    assert end.finish is FinishReason.FAILED
    assert one.idle


def test_a_request_has_one_to_2048_inputs() -> None:
    for count in (0, 2049):
        with pytest.raises(InvalidRequest, match="1 to 2048"):
            request("a", [1] * count)


class Machine(RuleBasedStateMachine):
    """Requests come, are aborted, fail, and are computed, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clocked = Clocked()
        self.open: dict[str, set[int]] = {}
        self.number = 0

    @rule(lengths=st.lists(st.integers(1, STEP), min_size=1, max_size=6), priority=st.sampled_from(Priority))
    def add(self, lengths: list[int], priority: Priority) -> None:
        self.number += 1
        name, now = str(self.number), self.clocked.now
        ends = self.clocked.scheduler.add(request(name, lengths, now, priority=priority), now)
        self.open[name] = set(range(len(lengths)))
        self.close(end.id for end in ends)

    def close(self, names: object) -> None:
        for name in names:  # type: ignore[attr-defined]
            del self.open[name]  # KeyError: it has ended twice

    @precondition(lambda self: self.open)
    @rule()
    def step(self) -> None:
        result = self.clocked.step()
        assert result.vectors, "requests wait, and nothing was computed"
        for vector in result.vectors:
            self.open[vector.id].remove(vector.index)  # KeyError: it has its vector already
        for end in result.ends:
            assert not self.open[end.id]
        self.close(end.id for end in result.ends)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), fail=st.booleans())
    def leave(self, data: st.DataObject, fail: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        one = self.clocked.scheduler
        self.close(end.id for end in (one.fail(name, "x") if fail else one.abort(name)))

    @invariant()
    def what_is_left_is_what_is_open(self) -> None:
        one = self.clocked.scheduler
        assert one.idle == (not self.open)
        assert one.running + one.waiting == len(self.open)
        assert (one.outstanding_tokens == 0) == one.idle


TestMachine = Machine.TestCase
