"""The simulated engine: the API's Engine, with timers instead of computation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog

from llmendpoint_server import protocol
from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.estimate import Lives, retry_after
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.errors import Unavailable
from llmendpoint_server.exits import EngineEnd
from llmendpoint_server.settings import Settings
from llmendpoint_server.simulator.behaviour import Behaviour, Fate, answer_tokens, fate, waits
from llmendpoint_server.simulator.tokens import END, VOCABULARY

MAX_MODEL_LEN = 32_768
MAX_NUM_SEQS = 64
PAGE_SIZE = 16


@dataclass(eq=False)
class Sequence:
    """One request in the engine."""

    number: int
    request: Request
    stream: EngineStream
    generated: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def tokens(self) -> int:
        return len(self.request.prompt) + self.generated


class SimulatedEngine:
    """Runs `max_num_seqs` requests at once. Up to `max_queued_requests` others wait in order; one more is refused."""

    def __init__(self, settings: Settings, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._limits = protocol.Loaded(
            "Simulator", settings.max_model_len or MAX_MODEL_LEN, settings.max_num_seqs or MAX_NUM_SEQS,
            settings.max_queued_requests, VOCABULARY, (END,), "cpu", "float32", 0, PAGE_SIZE, behaviour.load_time,
        )  # fmt: skip
        self._numbers = 0
        self._counters = Counters()
        self._frozen = False
        self._lives = Lives()
        self._observed = 0.0
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.state: protocol.State = "loading"
        self.detail = f"simulating a load of {behaviour.load_time:g} s"
        self.loaded: protocol.Loaded | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self.ended: asyncio.Future[EngineEnd] = asyncio.get_running_loop().create_future()

    # Its life

    async def start(self) -> None:
        self._spawn(self._load())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self) -> None:
        await asyncio.sleep(self._behaviour.load_time)
        if self._behaviour.load_error is not None:
            self._end(
                "The simulator was told to fail while loading (--load-error).", self._behaviour.load_error
            )
        elif self._behaviour.never_ready:
            self.detail = "simulating a load that never ends (--never-ready)"
        else:
            self.loaded = self._limits
            if self.state == "loading":
                self.state, self.detail = "ready", "ready"
                structlog.get_logger().info("engine: ready", detail="simulated")

    def _end(self, cause: str, code: int) -> None:
        self.state, self.detail = "failed", cause
        self.fail_all(cause)
        self.ended.set_result(EngineEnd(cause, code))

    def drain(self) -> None:
        if self.state not in ("draining", "failed"):
            self.state, self.detail = "draining", "shutting down"

    def failure(self) -> str | None:
        if self.state == "failed":
            return self.detail
        return "The simulator was told to freeze (--freeze-after)." if self._frozen else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Requests

    @property
    def in_flight(self) -> int:
        return len(self._sequences)

    @property
    def _running(self) -> int:
        return sum(sequence.task is not None for sequence in self._sequences.values())

    @property
    def stats(self) -> protocol.Stats:
        sequences = self._sequences.values()
        room = self._limits.max_num_seqs * self._limits.max_model_len
        outstanding = sum(one.request.sampling.max_tokens - one.generated for one in sequences)
        prefill = sum(len(one.request.prompt) for one in sequences if not one.generated)
        return protocol.Stats(
            waiting=len(self._waiting),
            running=self._running,
            outstanding_tokens=outstanding + prefill,
            kv_usage=min(1.0, sum(one.tokens for one in sequences if one.task is not None) / room),
            counters=replace(self._counters),
        )

    def submit(self, request: Request) -> EngineStream:
        """Raises Unavailable if this replica takes no requests."""
        if self.state != "ready":
            raise Unavailable(f"This replica is {self.state}: {self.detail}. Try again.", retry_after=1.0)
        stream = EngineStream(request.id, self.forget)
        running = self._running
        if running >= self._limits.max_num_seqs and len(self._waiting) >= self._limits.max_queued_requests:
            detail = f"{len(self._waiting)} requests are waiting already"
            reject = RequestOutput(
                request.id, finish=FinishReason.REJECTED, detail=detail, retry_after=self._retry_after()
            )
            stream.deliver(reject)
            return stream
        self._numbers += 1
        sequence = self._sequences[request.id] = Sequence(self._numbers, request, stream)
        self.idle.clear()
        if running < self._limits.max_num_seqs:
            self._run(sequence)
        else:
            self._waiting.append(sequence)
        return stream

    def _observe(self) -> None:
        """Must be called before the number of running requests changes."""
        now = asyncio.get_running_loop().time()
        self._lives.observe(self._running, now - self._observed)
        self._observed = now

    def _retry_after(self) -> float:
        """Estimated as in the engine's scheduler; a step is the time of a token."""
        self._observe()
        running = [one for one in self._sequences.values() if one.task is not None]
        fewest = min(one.request.sampling.max_tokens - one.generated for one in running)
        return retry_after(self._lives.mean_life, len(running), fewest, self._behaviour.itl)

    def _run(self, sequence: Sequence) -> None:
        self._observe()
        sequence.task = self._spawn(self._generate(sequence))

    async def _generate(self, sequence: Sequence) -> None:
        match fate(self._behaviour, sequence.number):
            case Fate.CRASH:
                after = self._behaviour.crash_after
                self._end(f"The simulator was told to crash after {after} requests (--crash-after).", 1)
            case Fate.FREEZE:
                self._frozen = True
                await asyncio.Event().wait()
            case Fate.HANG:
                await asyncio.Event().wait()
            case Fate.ERROR:
                await asyncio.sleep(waits(self._behaviour, sequence.number, 1)[0])
                detail = "The simulator was told to fail a share of its requests (--error-rate)."
                self._deliver(sequence, RequestOutput(sequence.request.id, finish=FinishReason.FAILED, detail=detail))  # fmt: skip
            case Fate.ANSWER:
                await self._answer(sequence)

    async def _answer(self, sequence: Sequence) -> None:
        request = sequence.request
        sampling = request.sampling
        tokens, ends = answer_tokens(
            self._behaviour, request.prompt, sampling.max_tokens, sampling.ignore_eos
        )
        last = FinishReason.STOP if ends else FinishReason.LENGTH
        loop = asyncio.get_running_loop()
        due = loop.time()
        for position, wait in enumerate(waits(self._behaviour, sequence.number, len(tokens))):
            due += wait  # not sleep(wait) each time: the delays of a busy loop would add up
            await asyncio.sleep(max(0.0, due - loop.time()))
            if position == 0:
                self._counters.prompt_tokens += len(request.prompt)
            sequence.generated += 1
            self._counters.steps += 1
            self._counters.generated_tokens += 1
            finish = last if position + 1 == len(tokens) else None
            self._deliver(sequence, RequestOutput(request.id, tokens[position : position + 1], finish))

    def _deliver(self, sequence: Sequence, output: RequestOutput) -> None:
        sequence.stream.deliver(output)
        if output.finish is not None:
            self._leave(sequence)

    def forget(self, request_id: str) -> None:
        """This request's outputs are not read any more."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            if sequence.task is not None:
                sequence.task.cancel()
            self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Make room: the first waiting request runs."""
        if sequence.task is not None and sequence.request.id in self._sequences:
            self._observe()
            self._lives.end()
        self._sequences.pop(sequence.request.id, None)
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        while self._waiting and self._running < self._limits.max_num_seqs:
            self._run(self._waiting.popleft())
        if not self._sequences:
            self.idle.set()

    def fail_all(self, detail: str) -> None:
        """End every open stream with `detail`, as EngineClient does."""
        well = self.failure() is None
        self._waiting.clear()
        for sequence in list(self._sequences.values()):
            if sequence.task is not None and sequence.task is not asyncio.current_task():
                sequence.task.cancel()
            reason = FinishReason.REJECTED if well and not sequence.generated else FinishReason.FAILED
            self._deliver(sequence, RequestOutput(sequence.request.id, finish=reason, detail=detail))
