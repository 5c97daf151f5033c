"""docs/concepts/architecture.md: a step's tensors are changed from step to step, and equal those that are built anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import GONE, Sequence
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.step import Step

CPU = torch.device("cpu")
PAGE = 4
LONGEST = 40


def sequence(name: int, tokens: int = LONGEST) -> Sequence:
    return Sequence(
        Request(str(name), (0,), SamplingParams(1)), 0, [name * 100 + n for n in range(tokens)], []
    )


def step(inputs: Inputs, *rows: Scheduled) -> Step:
    return Step(Batch(rows, 0.0), inputs, CPU, torch.float32)


CHANGES = st.one_of(
    st.just(("decode",)),
    st.tuples(st.just("chunk"), st.integers(2, 9)),
    st.tuples(st.just("draft"), st.integers(1, 3)),
    st.tuples(st.just("moved"), st.integers(0, 50)),
    st.just(("window",)),
    st.just(("absent",)),
)
"""what happens to a sequence before a step: it computes one token or more, guesses, gets other pages (a preemption), gives back the
first of them, or is not in the step"""
STEPS = st.lists(st.tuples(*[CHANGES] * 4, st.permutations(range(4))), min_size=1, max_size=12)


def change(one: Sequence, how: tuple[object, ...]) -> Scheduled | None:
    kind, *amount = how
    (number,) = [value for value in amount if isinstance(value, int)] or [1]
    if kind == "absent" or one.computed + 10 > LONGEST:
        return None
    count = number if kind == "chunk" else 1
    if kind == "moved":
        one.table = [number + 100 + place for place in range(len(one.table))]
    elif kind == "window" and one.table:
        one.table[: one.computed // PAGE] = [GONE] * (one.computed // PAGE)
    draft = tuple(range(number)) if kind == "draft" else ()
    end = one.computed + count + len(draft)
    while len(one.table) * PAGE < end:
        one.table.append(int(one.id) * 20 + len(one.table))
    one.tokens = [int(one.id) * 100 + n for n in range(one.computed + count)]
    row = Scheduled(one, one.computed, count + len(draft), draft)
    one.computed += count
    return row


@settings(deadline=None, max_examples=300)
@given(steps=STEPS)
def test_after_any_batches_the_tensors_equal_those_built_from_scratch(
    steps: list[tuple[tuple[object, ...], ...]],
) -> None:
    inputs = Inputs(PAGE, CPU)
    sequences = [sequence(n) for n in range(4)]
    for *changes, order in steps:
        rows = [row for n in order if (row := change(sequences[n], changes[n])) is not None]  # type: ignore[call-overload]  # of ints
        if not rows:
            continue
        found, new = step(inputs, *rows), step(Inputs(PAGE, CPU), *rows)
        for name in ("ids", "positions", "slots", "ends", "lengths", "logit_rows"):
            assert torch.equal(getattr(found.loaded, name), getattr(new.loaded, name)), name
        assert torch.equal(found.layout.rows[:, :3], new.layout.rows[:, :3])
        assert torch.equal(found.layout.slots, new.layout.slots)
        flat = found.layout.tables.flatten()
        for row, (first, count, start, begin) in zip(found.rows, found.layout.rows.tolist(), strict=True):
            table = row.sequence.table
            assert flat[begin : begin + len(table)].tolist() == table
            assert (count, start) == (row.count, row.start)
            assert found.ids[0, first : first + count].tolist() == row.tokens
            wanted = [table[place // PAGE] * PAGE + place % PAGE for place in range(start, start + count)]
            assert found.loaded.slots[first : first + count].tolist() == wanted


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[list[str]]:
    with Operations() as operations:
        yield operations.names


def decoding(count: int, place: int) -> list[Scheduled]:
    rows = []
    for n in range(count):
        one = sequence(n)
        one.table = [n * 20 + page for page in range(place // PAGE + 1)]
        rows.append(Scheduled(one, place, 1))
    return rows


def test_a_decode_step_after_another_makes_no_tensor_and_writes_a_table_only_where_a_page_was_added() -> None:
    inputs = Inputs(PAGE, CPU)
    inputs.reserve(3, 10)
    rows = decoding(3, 5)
    step(inputs, *rows)
    with counted() as names:
        step(inputs, *[Scheduled(row.sequence, 6, 1) for row in rows])
    assert not [name for name in names if not any(view in name for view in ("split", "slice", "unsqueeze"))]
    rows[1].sequence.table.append(77)
    with counted() as names:
        step(inputs, *[Scheduled(row.sequence, 7, 1) for row in rows])
    assert sum("index_copy_" in name for name in names) == 1
    assert inputs.tables[1, :3].tolist() == [20, 21, 77]


def test_a_row_of_bad_state_leaves_the_tables_as_they_were() -> None:
    inputs = Inputs(PAGE, CPU)
    good, bad = decoding(2, 5)
    step(inputs, good, bad)
    good.sequence.table, bad.sequence.table = [50, 51], None  # type: ignore[assignment]  # the fault to inject
    with pytest.raises(TypeError):
        step(inputs, good, bad)
    step(inputs, good)
    assert inputs.tables[0, :2].tolist() == [50, 51]


def test_a_slot_beyond_the_numbers_of_32_bits_is_exact() -> None:
    (row,) = decoding(1, 5)
    row.sequence.table = [2**30, 2**30 + 1]
    assert step(Inputs(PAGE, CPU), row).loaded.slots.tolist() == [(2**30 + 1) * PAGE + 1]
