"""The engine without sockets: requests in, outputs out, one step at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import structlog
import torch

from llmendpoint_server import protocol
from llmendpoint_server.core.batch import Batch, Sampled, Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.drafting import DEFAULT_DRAFT_TOKENS
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.sequence import Status
from llmendpoint_server.engine.adapters.stack import Stack
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.bring_up import ModelInfo
from llmendpoint_server.engine.graphs import Launched
from llmendpoint_server.engine.parallel.ranks import RankEnded, Ranks
from llmendpoint_server.engine.sampling.masks import Masks

_WARM_UP_TOKENS = 4


class Runner(Protocol):
    """Computes batches; raises what torch raises. `masks`: None: no request may have a grammar. `stack`: None: none may have an adapter."""

    masks: Masks | None
    stack: Stack | None

    def run(self, batch: Batch) -> list[Sampled]: ...

    def check(self) -> None:
        """Compute one token that belongs to no request. An exception here is the device's fault, not a request's."""


class Launcher(Protocol):
    """Begins batches; the tokens of one are read when the next one has begun."""

    def launch(self, batch: Batch, after: Launched | None = None) -> Launched | None:
        """None: the batch can only be run. `after`: what was launched last, and gives the rows of `batch` their tokens."""

    def result(self, launched: Launched) -> list[Sampled]: ...


class Engine:
    """`ranks`: those that compute the model together with this process. `launcher`: None: no batch begins before the one before it has
    ended."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        clock: Callable[[], float] = time.monotonic,
        ranks: Ranks | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.ranks = ranks
        self._launcher = launcher
        self._ahead: tuple[Batch, Launched] | None = None
        """what was launched beside the last batch"""
        self.runner = runner
        self.scheduler = scheduler
        self._clock = clock

    def add(self, request: Request) -> list[RequestOutput]:
        try:
            return self.scheduler.add(request, secrets.randbits(63), self._clock())
        except Exception as error:  # of any type: nothing of the request is kept, and the others go on
            return self._fail(request.id, error) or [
                RequestOutput(request.id, finish=FinishReason.FAILED, detail=_detail(error))
            ]

    def abort(self, request_id: str, index: int | None = None) -> list[RequestOutput]:
        return self.scheduler.abort(request_id, index) + self._faults()

    def step(self) -> list[RequestOutput]:
        """Compute one batch. If a batch raises any exception, its halves are computed, until the request at fault is
        alone. That request fails, and the others get their tokens. A request on whose state the scheduler raises fails
        too. If the scheduler raises and no single request is at fault, all of them end as LOST, and the scheduler
        starts anew.

        Raises if the device is at fault, so that only a new process helps: torch says so (after a fault, every later
        call on a CUDA context fails), or no row could be computed and the runner's check fails too.
        """
        outputs: list[RequestOutput] = []
        try:
            outputs = self.scheduler.expire(self._clock())
            batch = self._begun() or self.scheduler.schedule(self._clock())
        except Exception as error:  # any: no single request is at fault, so all end as LOST
            self.scheduler.reset(error)
            return outputs + self._faults()
        if not batch.rows:
            return outputs + self._faults()
        steps = self.scheduler.counters.steps
        outputs += self._compute(batch)
        if self.scheduler.counters.steps == steps:
            self.runner.check()
        return outputs + self._faults()

    def _begun(self) -> Batch | None:
        """The batch that runs already. None, too, if nobody wants it any more."""
        if self._ahead is not None:
            batch, launched = self._ahead
            if any(row.sequence.status is Status.RUNNING for row in batch.rows):
                self._ahead = Batch(batch.rows, self._clock()), launched  # the batch before it has just ended
            else:
                self._ahead = None
        return None if self._ahead is None else self._ahead[0]

    def _run(self, batch: Batch) -> list[Sampled]:
        """Compute a batch. If the next one is known, it begins before the tokens of this one are waited for: so Python's work for both is
        done while the device computes."""
        launcher, begun = self._launcher, self._ahead
        self._ahead = None
        if launcher is None:
            return self.runner.run(batch)
        launched = begun[1] if begun is not None and begun[0] is batch else launcher.launch(batch)
        if launched is None:
            return self.runner.run(batch)
        self._ahead = self._begin_after(batch, launched, launcher)
        return launcher.result(launched)

    def _begin_after(
        self, batch: Batch, launched: Launched, launcher: Launcher
    ) -> tuple[Batch, Launched] | None:
        """Begin the batch after `batch`, if it is known. One that raises says nothing of `batch`, whose tokens count: it is scheduled again,
        and then the row at fault is searched for."""
        try:
            following = self.scheduler.ahead(batch)
            after = None if following is None else launcher.launch(following, launched)
        except (torch.AcceleratorError, RankEnded):
            raise
        except Exception as error:  # any, as in `_compute`
            structlog.get_logger().error("a launch ahead failed", error=f"{type(error).__name__}: {error}")
            return None
        return None if following is None or after is None else (following, after)

    def _compute(self, batch: Batch) -> list[RequestOutput]:
        """A batch that raised leaves garbage only in slots that its own rows write again. The scheduler's state, the
        names of pages and the free pages change in `update` only, which raises before it changes anything or not at
        all. A page is cleared when a sequence begins it."""
        try:
            return self.scheduler.update(batch, self._run(batch), self._clock())
        except (torch.AcceleratorError, RankEnded):
            raise
        except Exception as error:  # not the device's: the row at fault is searched for, and fails alone
            structlog.get_logger().error(
                "a batch failed", rows=len(batch.rows), error=f"{type(error).__name__}: {error}"
            )
            self._ahead = None
            if batch.expected:
                return []  # nothing has changed: its rows are scheduled again
            if len(batch.rows) == 1:
                return self._fail(batch.rows[0].sequence.id, error)
        # Outside of the handler, because the exception's frames hold the tensors of the failed batch.
        middle = len(batch.rows) // 2
        halves = batch.rows[:middle], batch.rows[middle:]
        return [output for rows in halves for output in self._compute_rest(rows)]

    def _compute_rest(self, rows: tuple[Scheduled, ...]) -> list[RequestOutput]:
        """Without the rows whose request has failed since: it may have several rows."""
        rest = tuple(row for row in rows if row.sequence.status is Status.RUNNING)
        return self._compute(Batch(rest, self._clock())) if rest else []

    def _fail(self, request_id: str, error: Exception) -> list[RequestOutput]:
        """End a request that raised `error`. Returns an empty list if the scheduler does not have it."""
        return self.scheduler.fail(request_id, _detail(error)) + self._faults()

    def _faults(self) -> list[RequestOutput]:
        """The ends of requests that failed because of the scheduler's own state, each returned once."""
        faults = self.scheduler.take_faults()
        for fault in faults:
            structlog.get_logger().error(
                "the scheduler failed", id=fault.end.id, detail=fault.end.detail, exc_info=fault.error
            )
        return [fault.end for fault in faults]

    def warm_up(self, longest: int) -> None:
        """Run one generation through the whole path, so that the first caller does not wait for first-time work."""
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
        running, waiting = scheduler.adapters_of_requests() if scheduler.config.max_adapters else ((), ())
        return protocol.Stats(
            waiting=scheduler.waiting,
            waiting_tokens=scheduler.waiting_tokens,
            running=scheduler.running,
            outstanding_tokens=scheduler.outstanding_tokens,
            kv_usage=scheduler.blocks.held / scheduler.blocks.pages,
            counters=replace(scheduler.counters),
            running_adapters=running,
            waiting_adapters=waiting,
        )


def _detail(error: Exception) -> str:
    return f"The model failed on this request: {type(error).__name__}."


def _most_guessed(settings: protocol.Configure) -> int:
    if settings.speculative_method is None and settings.draft_model_path is None:
        return 0
    return settings.num_speculative_tokens or DEFAULT_DRAFT_TOKENS


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
        sliding_window=info.sliding_window,
        max_queued_tokens=settings.max_queued_tokens,
        max_adapters=settings.max_loras,
        num_speculative_tokens=_most_guessed(settings),
    )
    return Scheduler(config, BlockManager(info.kv_pages, info.page_size), info.make_proposer)
