"""docs/concepts/parallelism.md: another rank makes the same step of what rank 0 writes."""

from __future__ import annotations

import socket
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import GONE, Sequence
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.parallel.messages import Kind, Line, StepReader, StepWriter

PAGE = 4
CPU = torch.device("cpu")


def sequence(length: int, first_page: int, scores: bool = False) -> Sequence:
    prompt = tuple(range(1, length + 1))
    sampling = SamplingParams(4, prompt_logprobs=0) if scores else SamplingParams(4)
    table = list(range(first_page, first_page + -(-(length + 8) // PAGE)))
    return Sequence(Request(f"s{first_page}", prompt, sampling), 0, list(prompt), [], table=table)


rows = st.lists(
    st.tuples(
        st.integers(1, 20),
        st.floats(0, 1),
        st.floats(0, 1),
        st.integers(0, 3),
        st.booleans(),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


def batch(parts: list[tuple[int, float, float, int, bool, int]]) -> Batch:
    made = []
    for place, (length, begin, share, drafted, scores, gone) in enumerate(parts):
        one = sequence(length, 10 * place + 1, scores)
        start = min(int(begin * length), length - 1)
        count = max(1, int(share * (length - start)))
        draft = tuple(range(40, 40 + drafted)) if start + count == length else ()
        freed = min(gone, start // PAGE)
        one.table[:freed] = [GONE] * freed
        made.append(Scheduled(one, start, count + len(draft), draft))
    return Batch(tuple(made), 0.0)


@given(steps=st.lists(rows, min_size=1, max_size=4))
def test_each_rank_makes_the_step_that_rank_0_makes_whatever_came_before(
    steps: list[list[tuple[int, float, float, int, bool, int]]],
) -> None:
    writer, reader = StepWriter(), StepReader()
    for parts in steps:
        whole = batch(parts)
        told = reader.read(writer.write(whole))
        assert [list(row.sequence.table) for row in told.rows] == [row.sequence.table for row in whole.rows]
        ours, theirs = (Gathered(60, PAGE, CPU, torch.float32).prepare(one) for one in (whole, told))
        for name in ("ids", "positions", "slots", "ends", "lengths", "logit_rows"):
            assert torch.equal(getattr(ours.loaded, name), getattr(theirs.loaded, name)), name


def test_a_table_that_grows_is_not_sent_again() -> None:
    writer = StepWriter()
    one = sequence(400, 1)
    sizes = []
    for _ in range(3):
        sizes.append(len(writer.write(Batch((Scheduled(one, 399, 1),), 0.0))))
        one.table.append(len(one.table) + 1)
    assert sizes[0] > 400
    assert sizes[1:] == [4 * (1 + 8 + 1 + 1)] * 2


def test_a_row_of_bad_state_raises_before_anything_is_known_of_the_step() -> None:
    writer, reader = StepWriter(), StepReader()
    good = Batch((Scheduled(sequence(9, 1), 8, 1),), 0.0)
    reader.read(writer.write(good))
    broken = sequence(9, 20)
    broken.table = None  # type: ignore[assignment]  # the fault to inject
    with pytest.raises(TypeError):
        writer.write(Batch((Scheduled(sequence(9, 30), 8, 1), Scheduled(broken, 8, 1)), 0.0))
    assert list(reader.read(writer.write(good)).rows[0].sequence.table) == good.rows[0].sequence.table


def test_a_large_message_arrives_whole_and_the_end_of_the_other_side_is_told() -> None:
    ours, theirs = (Line(one) for one in socket.socketpair())
    body = bytes(range(256)) * 10_000
    sending = threading.Thread(target=ours.send, args=(Kind.STEP, body))
    sending.start()
    assert theirs.receive() == (Kind.STEP, body)
    sending.join()
    ours.stream.close()
    with pytest.raises(EOFError):
        theirs.receive()
