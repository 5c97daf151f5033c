"""docs/contribute/contracts.md: how many sequences and tokens a step computes follows from what steps were measured to take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core.batch_limits import (
    ROOM,
    SEQUENCES,
    STEP_SECONDS,
    TOKENS,
    UNMEASURED_SEQUENCES,
    Measured,
    sequences_that_pay,
    tokens_in_time,
)

SECONDS = st.floats(1e-5, 100)
DECODES = st.lists(SECONDS, min_size=1, max_size=len(SEQUENCES)).map(
    lambda times: [Measured(size, (seconds,)) for size, seconds in zip(SEQUENCES, times, strict=False)]
)
PROMPT = st.builds(lambda size, seconds: Measured(size, (seconds,)), st.integers(1, 512), SECONDS)


def decodes(seconds: Callable[[int], float], sizes: tuple[int, ...] = SEQUENCES) -> list[Measured]:
    return [Measured(size, (seconds(size),)) for size in sizes]


@pytest.mark.parametrize(
    ("seconds", "paying"),
    [
        (lambda rows: 0.01, 64),  # the weights are read once for all rows
        (lambda rows: 0.01 * rows, 4),  # each row costs as much as the first
        (lambda rows: max(0.01, 0.01 * rows / 16), 16),  # the processor is busy with 16
        (lambda rows: 0.01 + 0.0002 * rows, 64),
    ],
)
def test_a_batch_is_as_large_as_it_pays(seconds: Callable[[int], float], paying: int) -> None:
    assert sequences_that_pay(decodes(seconds)) == paying


def test_a_size_that_does_not_pay_is_passed_over_if_the_next_one_makes_up_for_it() -> None:
    slow_at_eight = {4: 4.0, 8: 8.0, 16: 9.0, 32: 18.0, 64: 36.0}
    assert sequences_that_pay(decodes(slow_at_eight.__getitem__)) == 16


def test_where_the_time_did_not_suffice_the_usual_number_is_taken_unless_less_was_seen_to_pay() -> None:
    assert sequences_that_pay(decodes(lambda rows: 1.0, (4,))) == UNMEASURED_SEQUENCES
    assert sequences_that_pay(decodes(lambda rows: 1.0, (4, 8))) == UNMEASURED_SEQUENCES
    assert sequences_that_pay(decodes(lambda rows: 1.0 * rows, (4, 8))) == 4
    assert sequences_that_pay(decodes(lambda rows: 1.0, (4, 8, 16, 32))) == 32


@pytest.mark.parametrize(
    ("size", "seconds", "tokens"),
    [
        (128, 0.05, 512),  # 0.39 ms for each
        (128, STEP_SECONDS / 2, 256),
        (64, 1e-4, TOKENS[-1]),
        (4, 8.0, TOKENS[0]),
    ],
)
def test_the_budget_is_what_a_step_computes_in_time(size: int, seconds: float, tokens: int) -> None:
    assert tokens_in_time([Measured(size, (seconds,))], 4) == tokens


def test_the_largest_step_says_what_a_token_takes_and_a_full_batch_leaves_room_for_prompts() -> None:
    steps = [Measured(128, (0.05,)), Measured(32, (0.05,))]
    assert tokens_in_time(steps, 4) == 512
    assert tokens_in_time([Measured(32, (9.0,))], 64) == 64 * ROOM
    assert tokens_in_time([Measured(32, (9.0,))], 4096) == TOKENS[-1]


@given(DECODES, PROMPT)
def test_both_are_within_their_bounds(steps: list[Measured], prompt: Measured) -> None:
    sequences = sequences_that_pay(steps)
    assert sequences in SEQUENCES
    assert TOKENS[0] <= tokens_in_time([prompt], sequences) <= TOKENS[-1]
    assert tokens_in_time([prompt], sequences) >= ROOM * sequences


@given(DECODES, st.integers(-6, 6))
def test_a_machine_that_is_slower_for_all_sizes_takes_as_many_sequences(
    steps: list[Measured], power: int
) -> None:
    slower = [Measured(step.size, (step.seconds * 2.0**power,)) for step in steps]
    assert sequences_that_pay(slower) == sequences_that_pay(steps)


@given(DECODES, st.floats(1, 1000))
def test_a_largest_size_that_is_slower_never_gives_a_larger_batch(
    steps: list[Measured], factor: float
) -> None:
    *smaller, last = steps
    slower = [*smaller, Measured(last.size, (last.seconds * factor,))]
    assert sequences_that_pay(slower) <= sequences_that_pay(steps)


@given(PROMPT, st.floats(1, 1000), st.sampled_from(SEQUENCES))
def test_slower_prompts_never_give_a_larger_budget(prompt: Measured, factor: float, sequences: int) -> None:
    slower = Measured(prompt.size, (prompt.seconds * factor,))
    assert tokens_in_time([slower], sequences) <= tokens_in_time([prompt], sequences)


@given(DECODES, PROMPT, st.data())
def test_one_pause_of_the_machine_changes_neither(
    steps: list[Measured], prompt: Measured, data: st.DataObject
) -> None:
    def paused(step: Measured) -> Measured:
        runs = [step.seconds] * 3
        runs[data.draw(st.integers(0, 2))] += data.draw(st.floats(0, 1000))
        return Measured(step.size, tuple(runs))

    sequences = sequences_that_pay(steps)
    assert sequences_that_pay([paused(step) for step in steps]) == sequences
    assert tokens_in_time([paused(prompt)], sequences) == tokens_in_time([prompt], sequences)
