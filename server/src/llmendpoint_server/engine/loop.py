"""The engine without sockets: requests in, outputs out, one step at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol

import structlog
import torch

from llmendpoint_server import protocol
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.request import Request, RequestOutput, SamplingParams
from llmendpoint_server.core.scheduler import Batch, Scheduler, SchedulerConfig
from llmendpoint_server.engine.runner import PAGE_SIZE, ModelInfo

_WARM_UP_TOKENS = 4


class Runner(Protocol):
    """Computes batches; raises what torch raises."""

    def run(self, batch: Batch) -> list[int]: ...


class Engine:
    def __init__(
        self, runner: Runner, scheduler: Scheduler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runner = runner
        self.scheduler = scheduler
        self._clock = clock

    def add(self, request: Request) -> list[RequestOutput]:
        refusal = self.scheduler.add(request, seed=secrets.randbits(63))
        return [] if refusal is None else [refusal]

    def abort(self, request_id: str) -> list[RequestOutput]:
        end = self.scheduler.abort(request_id)
        return [] if end is None else [end]

    def step(self) -> list[RequestOutput]:
        """Computes one batch. A batch that raises is computed again row by row: who is at fault fails alone.

        Raises RuntimeError when it is the device, and only a new process helps: every row of several fails, or torch
        says so (after a fault, every later call on a CUDA context fails)."""
        batch = self.scheduler.schedule(self._clock())
        if not batch.rows:
            return []
        try:
            sampled = self.runner.run(batch)
        except torch.AcceleratorError:
            raise
        except RuntimeError as error:
            structlog.get_logger().error("a batch failed", rows=len(batch.rows), error=str(error))
            return self._step_alone(batch)
        return self.scheduler.update(batch, sampled, self._clock())

    def _step_alone(self, batch: Batch) -> list[RequestOutput]:
        outputs = []
        failed = 0
        for row in batch.rows:
            alone = Batch((row,), batch.time)
            try:
                sampled = self.runner.run(alone)
            except torch.AcceleratorError:
                raise
            except RuntimeError as error:
                failed += 1
                if failed == len(batch.rows) > 1:
                    raise
                end = self.scheduler.fail(
                    row.sequence.id, f"The model failed on this request: {type(error).__name__}."
                )
                outputs += [] if end is None else [end]
            else:
                outputs += self.scheduler.update(alone, sampled, self._clock())
        return outputs

    def warm_up(self, longest: int) -> None:
        """One generation through the whole path, so that the first caller does not pay for first times."""
        prompt = tuple(range(min(longest - _WARM_UP_TOKENS, PAGE_SIZE + 1)))
        sampling = SamplingParams(_WARM_UP_TOKENS, temperature=0, ignore_eos=True)
        outputs = self.add(Request("warm-up", prompt, sampling))
        while not self.scheduler.idle:
            outputs += self.step()
        failures = [output.detail for output in outputs if output.detail]
        if failures:
            raise RuntimeError(f"The warm-up generation failed: {failures[0]}")

    def stats(self) -> protocol.Stats:
        scheduler = self.scheduler
        return protocol.Stats(
            waiting=scheduler.waiting,
            running=scheduler.running,
            outstanding_tokens=scheduler.outstanding_tokens,
            kv_usage=scheduler.blocks.held / scheduler.blocks.pages,
            **asdict(scheduler.counters),
        )


def make_scheduler(settings: protocol.Configure, info: ModelInfo) -> Scheduler:
    config = SchedulerConfig(
        max_model_len=info.max_model_len,
        max_num_seqs=info.max_num_seqs,
        max_queued_requests=settings.max_queued_requests,
        max_batched_tokens=info.max_batched_tokens,
        vocab_size=info.vocab_size,
        eos_token_ids=frozenset(info.eos_token_ids),
        prefix_caching=settings.prefix_caching,
        prefix_key=secrets.token_bytes(32),
        model_revision=settings.model_revision,
    )
    return Scheduler(config, BlockManager(info.kv_pages, PAGE_SIZE))
