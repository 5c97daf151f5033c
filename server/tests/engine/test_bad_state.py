"""docs/contribute/contracts.md: the request at fault fails alone, or all may be sent again, and the engine goes on.

The scheduler's state has gone bad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.batch import NOTHING, Batch, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.loop import Engine

PAGE = 2
NAMES = "abcdef"
TOKENS = 9


class Arithmetic:
    """A model that exists only as a function of a sequence's tokens."""

    masks = stack = None

    def run(self, batch: Batch) -> list[Sampled]:
        return [Sampled((next_token(row.sequence.tokens),)) if row.sample else NOTHING for row in batch.rows]

    def check(self) -> None:
        pass


class Launching(Arithmetic):
    """Its steps may begin before the one before them has ended."""

    def launch(self, batch: Batch, after: dict[Sequence, int] | None = None) -> dict[Sequence, int] | None:
        coming = {} if after is None else after
        tokens = {
            row.sequence: next_token([*row.sequence.tokens, *([coming[row.sequence]] if coming else [])])
            for row in batch.rows
        }
        return tokens if batch.plain else None

    def result(self, launched: dict[Sequence, int]) -> list[Sampled]:
        return [Sampled((token,)) for token in launched.values()]


def next_token(tokens: list[int]) -> int:
    return (sum(tokens) * 31 + len(tokens)) % 7


def prompt_of(name: str) -> tuple[int, ...]:
    return tuple((ord(name) + place) % 7 for place in range(5))


def expected(name: str) -> list[int]:
    tokens = list(prompt_of(name))
    for _ in range(TOKENS):
        tokens.append(next_token(tokens))
    return tokens[5:]


def make_engine(
    names: str = NAMES, pages: int = 64, places: int = 4, window: int | None = None, ahead: bool = False
) -> Engine:
    config = SchedulerConfig(2 * pages, places, 64, 16, 100, sliding_window=window)
    runner = Launching()
    launcher: Any = runner if ahead else None
    engine = Engine(runner, Scheduler(config, BlockManager(pages, PAGE)), launcher=launcher)
    for name in names:
        assert engine.add(ask(name)) == []
    return engine


def sequence_of(engine: Engine, name: str) -> Sequence | None:
    group = engine.scheduler._members.groups.get(name)
    return None if group is None else group.members[0]


def ask(name: str) -> Request:
    return Request(name, prompt_of(name), SamplingParams(TOKENS, temperature=0))


class Answers:
    """What each request got; no request may end twice."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, RequestOutput] = {}

    def take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            assert output.id not in self.ends, "an output after the last one"
            self.tokens.setdefault(output.id, []).extend(output.tokens)
            if output.finish is not None:
                self.ends[output.id] = output

    def finish(self, engine: Engine) -> None:
        for _ in range(500):
            if engine.scheduler.idle:
                break
            self.take(engine.step())
        assert engine.scheduler.idle, "the engine does not go on"
        assert engine.scheduler.blocks.held == 0, "a page leaked"

    def whole(self, names: str) -> bool:
        return all(
            self.tokens[name] == expected(name) and self.ends[name].finish is FinishReason.LENGTH
            for name in names
        )


def no_names(engine: Engine, sequence: Sequence) -> None:
    sequence.names.clear()
    sequence.named = 0


def no_such_page(engine: Engine, sequence: Sequence) -> None:
    sequence.table[-1:] = [10**6]


def pages_of_nobody(engine: Engine, sequence: Sequence) -> None:
    engine.scheduler.blocks.release(sequence.held)


def nothing_to_compute(engine: Engine, sequence: Sequence) -> None:
    sequence.computed = len(sequence.tokens)


def no_table(engine: Engine, sequence: Sequence) -> None:
    sequence.table = None  # type: ignore[assignment]  # the fault to inject


FAULTS = (no_names, no_such_page, pages_of_nobody, nothing_to_compute, no_table)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_request_of_bad_state_fails_alone(fault: Callable[[Engine, Sequence], None], ahead: bool) -> None:
    engine, answers = make_engine("abcd", ahead=ahead), Answers()
    for _ in range(3):
        answers.take(engine.step())
    fault(engine, sequence_of(engine, "b"))
    answers.finish(engine)
    assert answers.ends["b"].finish is FinishReason.FAILED
    assert "engine failed on this request" in answers.ends["b"].detail
    assert answers.whole("acd")


@settings(deadline=None, max_examples=200)
@given(
    fault=st.sampled_from(FAULTS),
    name=st.sampled_from(NAMES),
    step=st.integers(1, 12),
    pages=st.integers(16, 40),
    window=st.none() | st.integers(1, 9),
    aborted=st.booleans(),
    ahead=st.booleans(),
)
def test_whenever_a_running_request_goes_bad_the_others_get_their_tokens(
    fault: Callable[[Engine, Sequence], None],
    name: str,
    step: int,
    pages: int,
    window: int | None,
    aborted: bool,
    ahead: bool,
) -> None:
    engine, answers = make_engine(pages=pages, window=window, ahead=ahead), Answers()
    for _ in range(step):
        answers.take(engine.step())
    sequence = sequence_of(engine, name)
    if sequence is None or sequence not in engine.scheduler._members.running or not sequence.held:
        return
    fault(engine, sequence)
    if aborted:
        answers.take(engine.abort(name))
    answers.finish(engine)
    assert answers.ends.keys() == set(NAMES)
    others = NAMES.replace(name, "")
    if fault is pages_of_nobody:  # others may get these pages, and be found at fault before it
        others = "".join(other for other in others if answers.ends[other].finish is FinishReason.LENGTH)
    assert answers.whole(others)


def test_a_request_that_cannot_be_preempted_fails_alone() -> None:
    engine, answers = make_engine("abcd", pages=12), Answers()
    answers.take(engine.step())
    no_table(engine, engine.scheduler._members.running[-1])
    victim = engine.scheduler._members.running[-1].id
    answers.finish(engine)
    assert answers.ends[victim].finish is FinishReason.FAILED
    assert answers.whole("abcd".replace(victim, ""))


def test_a_request_of_bad_state_is_ended_by_an_abort_and_by_a_failure_of_the_model() -> None:
    engine, answers = make_engine("abc"), Answers()
    answers.take(engine.step())
    pages_of_nobody(engine, sequence_of(engine, "b"))
    answers.take(engine.abort("b"))
    assert answers.ends["b"].finish is FinishReason.FAILED
    answers.finish(engine)
    assert answers.whole("ac")


def test_when_nobody_can_be_blamed_all_requests_may_be_sent_again_and_new_ones_are_served() -> None:
    engine, answers = make_engine(), Answers()
    for _ in range(3):
        answers.take(engine.step())
    engine.scheduler._members.running = None  # type: ignore[assignment]  # the fault to inject
    answers.finish(engine)
    assert {end.finish for end in answers.ends.values()} == {FinishReason.LOST}
    assert answers.ends.keys() == set(NAMES)
    again = Answers()
    for name in NAMES:
        assert engine.add(ask(name)) == []
    again.finish(engine)
    assert again.whole(NAMES)


def test_two_requests_of_bad_state_at_once_lose_the_others_no_more_than_their_place() -> None:
    """The first one's end counts the pages anew, from tables of which another is bad too."""
    engine, answers = make_engine("abcd"), Answers()
    answers.take(engine.step())
    no_such_page(engine, sequence_of(engine, "b"))
    no_such_page(engine, sequence_of(engine, "d"))
    answers.finish(engine)
    assert {answers.ends[name].finish for name in "bd"} <= {FinishReason.FAILED, FinishReason.LOST}
    assert all(answers.ends[name].finish in (FinishReason.LENGTH, FinishReason.LOST) for name in "ac")


def test_a_scheduler_that_schedules_nothing_though_requests_wait_begins_anew() -> None:
    engine, answers = make_engine("ab"), Answers()
    answers.take(engine.step())
    engine.scheduler._members.running.clear()
    answers.finish(engine)
    assert {answers.ends[name].finish for name in "ab"} == {FinishReason.LOST}


def test_a_model_that_gives_too_few_tokens_is_at_fault_and_not_the_scheduler() -> None:
    engine, answers = make_engine("ab"), Answers()
    engine.runner.run = lambda batch: []  # type: ignore[method-assign]  # the fault to inject
    answers.finish(engine)
    assert {answers.ends[name].finish for name in "ab"} == {FinishReason.FAILED}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_an_answer_of_bad_state_fails_all_of_its_request_and_no_other(
    fault: Callable[[Engine, Sequence], None],
) -> None:
    engine, ends = make_engine("ab", places=8), []
    engine.add(Request("three", prompt_of("c"), SamplingParams(TOKENS, temperature=0), n=3))
    for _ in range(3):
        engine.step()
    fault(engine, engine.scheduler._members.groups["three"].members[1])
    while not engine.scheduler.idle:
        ends += [output for output in engine.step() if output.finish is not None]
    assert sorted(end.index for end in ends if end.id == "three") == [0, 1, 2]
    late = {end.index: end.finish for end in ends if end.id == "three"}
    assert late[1] is late[2] is FinishReason.FAILED
    assert late[0] in (FinishReason.FAILED, FinishReason.LENGTH)  # it may end before the fault shows
    others = {end.id: end.finish for end in ends if end.id != "three"}
    assert others.keys() == {"a", "b"}
    if fault is not pages_of_nobody:  # others may get these pages, and be found at fault
        assert set(others.values()) == {FinishReason.LENGTH}
    assert engine.scheduler.blocks.held == 0
