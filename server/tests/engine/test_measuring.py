"""docs/contribute/contracts.md: the engine times a few steps at its start, in a bounded time, and what is set is not measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from llmendpoint_server.core.batch import Batch, Sampled
from llmendpoint_server.core.batch_limits import ROOM, SEQUENCES, Measured
from llmendpoint_server.engine import measuring
from llmendpoint_server.engine.bring_up import batch_limits, limits_of, load
from llmendpoint_server.engine.measuring import (
    DECODE_SECONDS,
    MOST_SECONDS,
    PAGES,
    PROMPT_SECONDS,
    PROMPTS,
    StepTimes,
    busy_clock,
    measure,
)
from llmendpoint_server.protocol import Configure


class FakeMachine:
    """A clock that only steps move: `seconds` of so many tokens, and what `pause` adds to the n-th step."""

    def __init__(
        self, seconds: Callable[[int], float], pause: Callable[[int], float] = lambda step: 0.0
    ) -> None:
        self.now = 1000.0
        self.batches: list[Batch] = []
        self._seconds, self._pause = seconds, pause

    def run(self, batch: Batch) -> list[Sampled]:
        self.now += self._seconds(batch.tokens) + self._pause(len(self.batches))
        self.batches.append(batch)
        return [(0,)] * len(batch.rows)

    def clock(self) -> float:
        return self.now


def test_each_size_is_timed_on_a_machine_that_is_fast_enough() -> None:
    machine = FakeMachine(lambda tokens: 0.001 + 0.0001 * tokens)
    times = measure(machine, 512, 512, machine.clock, machine.clock)
    assert {step.size: pytest.approx(step.seconds) for step in times.decodes} == {
        size: 0.001 + 0.0001 * size for size in SEQUENCES
    }
    assert [step.size for step in times.prompts] == list(PROMPTS)
    assert limits_of(times) == (64, 1024)


@given(st.floats(1e-5, 60), st.floats(0, 10))
def test_measuring_takes_no_more_than_its_time_or_two_steps(once: float, per_token: float) -> None:
    def seconds(tokens: int) -> float:
        return once + per_token * tokens

    machine = FakeMachine(seconds)
    times = measure(machine, 512, 512, machine.clock, machine.clock)
    longest = max(2 * seconds(SEQUENCES[0]), DECODE_SECONDS)
    assert machine.now - 1000.0 <= longest + PROMPT_SECONDS + 1e-6
    sequences, tokens = limits_of(times)
    assert 4 <= sequences <= 64
    assert 128 <= tokens <= 2048


@given(st.integers(0, 40), st.floats(0, 0.25))
def test_one_pause_of_a_quarter_second_changes_no_limit(step: int, length: float) -> None:
    def seconds(tokens: int) -> float:
        return 0.001 + 0.00008 * tokens

    steady = FakeMachine(seconds)
    paused = FakeMachine(seconds, lambda n: length if n == step else 0.0)
    expected = limits_of(measure(steady, 512, 512, steady.clock, steady.clock))
    assert limits_of(measure(paused, 512, 512, paused.clock, paused.clock)) == expected


def test_a_neighbour_that_has_the_cores_changes_no_limit_and_the_start_is_not_held_up_for_long() -> None:
    machine = FakeMachine(lambda tokens: 0.001 + 0.0001 * tokens)
    expected = limits_of(measure(machine, 512, 512, machine.clock, machine.clock))
    beside = FakeMachine(lambda tokens: 0.001 + 0.0001 * tokens)
    times = measure(beside, 512, 512, beside.clock, lambda: 5 * beside.now)
    assert limits_of(times) == expected
    crowded = FakeMachine(lambda tokens: 0.001 + 0.0001 * tokens)
    times = measure(crowded, 512, 512, crowded.clock, lambda: 200 * crowded.now)
    assert len(times.decodes) < len(SEQUENCES)
    assert 200 * (crowded.now - 1000.0) < MOST_SECONDS + 200 * 4 * 0.0074  # what was begun is ended


@pytest.mark.parametrize(
    ("granted", "seconds"), [("50000 100000", 6.0), ("max 100000", 3.0), ("400000 100000", 3.0)]
)
def test_with_half_a_processor_a_step_takes_twice_its_processor_time(
    granted: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(granted)
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    assert torch.get_num_threads() == 1
    assert busy_clock(tmp_path)() == seconds


def test_the_steps_stay_within_the_pages_the_model_and_its_vocabulary() -> None:
    machine = FakeMachine(lambda tokens: 0.0)
    times = measure(machine, 7, 40, machine.clock, machine.clock)
    assert [step.size for step in times.prompts] == [32]
    for row in (row for batch in machine.batches for row in batch.rows):
        assert row.start + row.count <= 40
        assert len(row.sequence.table) * 16 >= row.start + row.count
        assert set(row.sequence.table) <= set(range(PAGES))
        assert set(row.sequence.tokens) <= set(range(7))


@pytest.mark.parametrize(
    ("wanted", "limits"),
    [
        ({}, (32, 1024)),
        ({"max_num_seqs": 1000}, (1000, 1024)),
        ({"max_num_seqs": 2000}, (2000, 2000)),
        ({"max_batched_tokens": 7}, (7, 7)),
        ({"max_batched_tokens": 2048, "max_num_seqs": 4}, (4, 2048)),
    ],
)
def test_a_step_has_a_token_for_each_sequence_and_what_is_set_decides(
    wanted: dict[str, int], limits: tuple[int, int]
) -> None:
    assert batch_limits(Configure("m", **wanted), lambda: (32, 1024)) == limits


def test_where_more_sequences_are_set_than_pay_a_step_has_room_for_prompts_beside_them(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = StepTimes((Measured(4, (4.0,)), Measured(8, (8.0,))), (Measured(32, (32.0,)),))
    monkeypatch.setattr(measuring, "measure", lambda *_: slow)
    configure = Configure(
        str(model_folder("llama")), device="cpu", dtype="float32", max_model_len=64, max_num_seqs=100
    )
    with capture_logs() as logs:
        _, info = load(configure)
    assert (info.max_num_seqs, info.max_batched_tokens) == (100, 100 * ROOM)
    (line,) = [line for line in logs if line["event"] == "batch limits"]
    assert (line["max_num_seqs"], line["max_batched_tokens"]) == (100, 100 * ROOM)


def test_nothing_is_measured_where_both_are_set(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "measure", None)
    configure = Configure(
        str(model_folder("llama")), device="cpu", dtype="float32", max_num_seqs=3, max_batched_tokens=99
    )
    _, info = load(configure)
    assert (info.max_num_seqs, info.max_batched_tokens) == (3, 99)


@pytest.mark.parametrize("shape", ["llama", "gpt2", "mixtral"])
def test_a_model_is_measured_and_served_with_what_was_found(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    runner, info = load(Configure(str(model_folder(shape)), device="cpu", dtype="float32", max_model_len=64))
    assert info.max_num_seqs in SEQUENCES
    assert 128 <= info.max_batched_tokens <= 2048
    runner.check()
