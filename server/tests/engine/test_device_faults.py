"""Whose fault a failed step is: one request's, or the device's."""

from __future__ import annotations

import pytest
import torch

from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.core.scheduler import Batch, Scheduler, SchedulerConfig
from llmendpoint_server.engine.loop import Engine


class FailingRunner:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, batch: Batch) -> list[int]:
        raise self.error


def engine_with_one_request(error: Exception) -> Engine:
    config = SchedulerConfig(64, 4, 4, 64, 100)
    engine = Engine(FailingRunner(error), Scheduler(config, BlockManager(16, 16)))
    engine.add(Request("a", (1, 2, 3), SamplingParams(5)))
    return engine


def test_a_request_that_cannot_be_computed_fails_alone() -> None:
    engine = engine_with_one_request(RuntimeError("shape mismatch"))
    assert [output.finish for output in engine.step()] == [FinishReason.FAILED]


def test_a_fault_of_the_device_ends_the_engine_even_with_one_request() -> None:
    engine = engine_with_one_request(torch.AcceleratorError("CUDA error: an illegal memory access"))
    with pytest.raises(torch.AcceleratorError):
        engine.step()
