"""docs/contribute/contracts.md: a failed step is the fault of one request, which fails alone, or of the device, and ends the engine."""

from __future__ import annotations

import pytest
import torch

from llmendpoint_server.core.batch import NOTHING, Batch, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.engine.loop import Engine

OVERFLOW = ValueError("Overflow when unpacking long long")


class FailingRunner:
    """Raises on a batch that holds one of `bad`; `broken` is what its check raises."""

    masks = stack = None

    def __init__(self, error: Exception, bad: set[str], broken: Exception | None = None) -> None:
        self.error, self.bad, self.broken = error, bad, broken
        self.batches: list[list[str]] = []

    def run(self, batch: Batch) -> list[Sampled]:
        names = [row.sequence.id for row in batch.rows]
        self.batches.append(names)
        if self.bad & set(names):
            raise self.error
        return [Sampled((7,)) if row.sample else NOTHING for row in batch.rows]

    def check(self) -> None:
        if self.broken is not None:
            raise self.broken


def make_engine(runner: FailingRunner, names: str) -> Engine:
    config = SchedulerConfig(64, 16, 16, 64, 100)
    engine = Engine(runner, Scheduler(config, BlockManager(64, 4)))
    for name in names:
        assert engine.add(Request(name, (1, 2, 3), SamplingParams(2))) == []
    return engine


def finish(engine: Engine) -> dict[str, list[RequestOutput]]:
    found: dict[str, list[RequestOutput]] = {}
    while not engine.scheduler.idle:
        for output in engine.step():
            found.setdefault(output.id, []).append(output)
    assert engine.scheduler.blocks.held == 0
    return found


@pytest.mark.parametrize(
    "error",
    [OVERFLOW, RuntimeError("shape mismatch"), KeyError("x"), OverflowError(), IndexError(), MemoryError(),
     TypeError(), AssertionError(), torch.OutOfMemoryError("CUDA out of memory")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_request_on_which_anything_is_raised_fails_alone(error: Exception) -> None:
    found = finish(make_engine(FailingRunner(error, {"b"}), "abc"))
    assert [(output.finish, output.detail) for output in found["b"]] == [
        (FinishReason.FAILED, f"The model failed on this request: {type(error).__name__}.")
    ]
    for name in "ac":
        assert [output.tokens for output in found[name]] == [(7,), (7,)]
        assert found[name][-1].finish is FinishReason.LENGTH


def test_several_poisoned_requests_alone_in_a_batch_fail_and_the_engine_goes_on() -> None:
    engine = make_engine(FailingRunner(OVERFLOW, {"a", "b"}), "ab")
    assert [output.finish for output in engine.step()] == [FinishReason.FAILED] * 2
    engine.add(Request("c", (1, 2, 3), SamplingParams(2)))
    assert finish(engine)["c"][-1].finish is FinishReason.LENGTH


def test_one_poisoned_request_among_many_is_found_by_halving() -> None:
    runner = FailingRunner(OVERFLOW, {"k"})
    make_engine(runner, "abcdefghijklmnop").step()
    assert len(runner.batches) == 9  # the whole, and two halves at each of four levels


def test_a_fault_of_the_device_ends_the_engine_even_with_one_request() -> None:
    engine = make_engine(
        FailingRunner(torch.AcceleratorError("CUDA error: illegal memory access"), {"a"}), "a"
    )
    with pytest.raises(torch.AcceleratorError):
        engine.step()


@pytest.mark.parametrize("names", ["a", "ab"])
def test_when_no_row_can_be_computed_and_the_runners_own_check_fails_too_the_engine_ends(names: str) -> None:
    gone = RuntimeError("the device is gone")
    engine = make_engine(FailingRunner(gone, set(names), broken=gone), names)
    with pytest.raises(RuntimeError, match="the device is gone"):
        engine.step()


def test_a_request_that_the_scheduler_cannot_take_fails_alone() -> None:
    engine = make_engine(FailingRunner(OVERFLOW, set()), "a")
    (end,) = engine.add(Request("b", (1, 2), SamplingParams(2), salt="\ud800"))
    assert (end.finish, end.detail) == (
        FinishReason.FAILED, "The model failed on this request: UnicodeEncodeError.",
    )  # fmt: skip
    assert finish(engine).keys() == {"a"}


def test_a_second_request_of_one_id_ends_that_id_once_and_nobody_else() -> None:
    engine = make_engine(FailingRunner(OVERFLOW, set()), "ab")
    (end,) = engine.add(Request("a", (1, 2), SamplingParams(2)))
    assert (end.id, end.finish) == ("a", FinishReason.FAILED)
    assert finish(engine).keys() == {"b"}


def test_several_answers_on_which_the_model_raises_fail_as_one_request() -> None:
    runner = FailingRunner(OVERFLOW, set())
    engine = make_engine(runner, "ac")
    engine.add(Request("b", (1, 2, 3), SamplingParams(5), n=4))
    engine.step()
    runner.bad = {"b"}
    ends = [output for output in engine.step() if output.finish is not None]
    assert [(end.index, end.finish) for end in ends if end.id == "b"] == [
        (index, FinishReason.FAILED) for index in range(4)
    ]
    assert len([names for names in runner.batches if "b" in names]) <= 5, "searched once, not for each answer"
    assert {end.finish for end in ends if end.id != "b"} == {FinishReason.LENGTH}
