"""The engine of a model that makes vectors, without sockets: requests in, vectors out, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog
import torch

from llmendpoint_server import protocol
from llmendpoint_server.core.pooling.request import Input, PoolingRequest
from llmendpoint_server.core.pooling.scheduler import PoolingBatch, PoolingScheduler, StepResult
from llmendpoint_server.core.request import FinishReason, RequestOutput


class Runner(Protocol):
    """Computes vectors; raises what torch raises."""

    def run(self, inputs: Sequence[Input]) -> list[bytes | None]: ...
    def check(self) -> None: ...


class PoolingEngine:
    def __init__(
        self, runner: Runner, scheduler: PoolingScheduler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner, self._clock = runner, clock
        self.scheduler = scheduler

    def add(self, request: PoolingRequest) -> list[RequestOutput]:
        try:
            return self.scheduler.add(request, self._clock())
        except Exception as error:  # of any type: nothing of the request is kept, and the others go on
            return [RequestOutput(request.id, finish=FinishReason.FAILED, detail=_detail(error))]

    def step(self) -> StepResult:
        """Compute one batch. If it raises, its halves are computed, until the input at fault is alone; its request fails.
        Raises if the device is at fault, so that only a new process helps."""
        try:
            result = StepResult(ends=tuple(self.scheduler.expire(self._clock())))
            batch = self.scheduler.schedule(self._clock())
        except Exception as error:  # any: no single request is at fault, so all end as LOST
            structlog.get_logger().error("the scheduler failed", exc_info=error)
            ends = self.scheduler.reset(f"The engine lost this request: {type(error).__name__}.")
            return StepResult(ends=tuple(ends))
        if not batch.rows:
            return result
        steps = self.scheduler.counters.steps
        result += self._compute(batch)
        if self.scheduler.counters.steps == steps:
            self._runner.check()
        return result

    def _compute(self, batch: PoolingBatch) -> StepResult:
        rows = tuple(row for row in batch.rows if self.scheduler.has(row.member))
        if not rows:
            return StepResult()
        try:
            vectors = self._runner.run([row.input for row in rows])
            return self.scheduler.update(PoolingBatch(rows, batch.time), vectors, self._clock())
        except torch.AcceleratorError:
            raise
        except (
            Exception
        ) as error:  # not the device's: the input at fault is searched for, and its request fails alone
            structlog.get_logger().error(
                "a batch failed", rows=len(rows), error=f"{type(error).__name__}: {error}"
            )
            if len(rows) == 1:
                return StepResult(ends=tuple(self.scheduler.fail(rows[0].member.request.id, _detail(error))))
        # Outside of the handler, because the exception's frames hold the tensors of the failed batch.
        middle = len(rows) // 2
        first = self._compute(PoolingBatch(rows[:middle], self._clock()))
        return first + self._compute(PoolingBatch(rows[middle:], self._clock()))

    def warm_up(self) -> None:
        """Make vectors through the whole path, so that the first caller does not wait for first-time work."""
        longest = min(self.scheduler.config.max_model_len, 64)
        ends = self.add(PoolingRequest("warm-up", (Input((0,) * longest), Input((0,)))))
        while not self.scheduler.idle:
            ends += self.step().ends
        failures = [end.detail for end in ends if end.detail]
        if failures:
            raise RuntimeError(f"The warm-up failed: {failures[0]}")

    def stats(self) -> protocol.Stats:
        scheduler = self.scheduler
        return protocol.Stats(
            waiting=scheduler.waiting,
            waiting_tokens=scheduler.waiting_tokens,
            running=scheduler.running,
            outstanding_tokens=scheduler.outstanding_tokens,
            counters=replace(scheduler.counters),
        )


def _detail(error: Exception) -> str:
    return f"The model failed on this request: {type(error).__name__}."
