"""The simulated engine: the API's Engine, with timers instead of computation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import structlog
from msgspec.structs import replace as timed

from llmendpoint_server import protocol
from llmendpoint_server.api.engine_stream import EngineStream, streams_of
from llmendpoint_server.core.admission import DEADLINE_PASSED, DISPLACED, too_late
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.estimate import Lives, place_wait, retry_after
from llmendpoint_server.core.queue import WaitingQueue
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.errors import Unavailable
from llmendpoint_server.exits import EngineEnd
from llmendpoint_server.settings import Settings
from llmendpoint_server.simulator.adapters import WithoutWeights, adapters_of
from llmendpoint_server.simulator.behaviour import Behaviour, Fate, answer_tokens, fate, waits
from llmendpoint_server.simulator.scores import scored
from llmendpoint_server.simulator.sequence import Sequence
from llmendpoint_server.simulator.tokens import END, VOCABULARY

MAX_MODEL_LEN = 32_768
MAX_NUM_SEQS = 64
PAGE_SIZE = 16


class SimulatedEngine(WithoutWeights):
    """Runs `max_num_seqs` answers at once. Others wait in the order, and within the bounds, of the engine's queue."""

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
        self._sequences: dict[EngineStream, Sequence] = {}
        self._waiting: WaitingQueue[Sequence] = WaitingQueue(
            settings.max_queued_requests, settings.queued_tokens
        )
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
        return len({stream.id for stream in self._sequences})

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
            waiting_tokens=self._waiting.tokens,
            running=self._running,
            outstanding_tokens=outstanding + prefill,
            kv_usage=min(1.0, sum(one.due for one in sequences if one.task is not None) / room),
            counters=replace(self._counters),
            running_adapters=adapters_of(one.request for one in sequences if one.task is not None),
            waiting_adapters=adapters_of(one.request for one in sequences if one.task is None),
        )

    def submit(self, request: Request) -> EngineStream:
        """Returns the stream of the first answer. Raises Unavailable if this replica takes no requests."""
        if self.state != "ready":
            raise Unavailable(f"This replica is {self.state}: {self.detail}. Try again.", retry_after=1.0)
        first = streams_of(request.id, request.n, self._forget)
        sequences = [Sequence(self._numbers + 1, request, stream) for stream in first.answers]
        refusal = self._refusal(sequences)
        if refusal is not None:
            for stream in first.answers:
                stream.deliver(refusal)
            return first
        self._numbers += 1
        for sequence in sequences:
            self._sequences[sequence.stream] = sequence
            self.idle.clear()
            if self._running < self._limits.max_num_seqs:
                self._run(sequence)
            else:
                self._wait(sequence)
        return first

    def _refusal(self, sequences: list[Sequence]) -> RequestOutput | None:
        """Decided as in the engine's `core/admission.py`, for all answers of a request."""
        sequence, count = sequences[0], len(sequences)
        request, free = sequence.request, self._limits.max_num_seqs - self._running
        full, due = self._waiting.full(free, count), count * sequence.due
        bound = full or self._waiting.too_long(due)
        gone = self._waiting.displaced_by(sequence, count, due, free) if bound else []
        if bound and not gone:
            self._counters.count_refusal(by_requests=full is not None)
            return self._reject(request, bound.why, bound.leave_first)
        late = self._late(sequence, free)
        for other in gone if late is None else ():
            self._counters.count_refusal(by_requests=full is not None)
            self._deliver(other, self._reject(other.request, DISPLACED, 1))
        return late

    def _late(self, sequence: Sequence, free: int) -> RequestOutput | None:
        request = sequence.request
        if request.deadline is None:
            return None
        ahead, _ = self._waiting.ahead(sequence.order)
        left, expected = (
            request.deadline - time.monotonic(),
            self._place_wait(ahead + 1 - free) + self._behaviour.ttft,
        )
        if expected <= left:
            return None
        self._counters.deadlines_unreachable += 1
        again = retry_after(expected - left)
        return too_late(request.id, "the first token is expected in", expected, left, again)

    def _reject(self, request: Request, why: str, places: int) -> RequestOutput:
        again = retry_after(self._place_wait(places))
        return RequestOutput(request.id, finish=FinishReason.REJECTED, detail=why, retry_after=again)

    def _wait(self, sequence: Sequence) -> None:
        self._waiting.push(sequence)
        if sequence.request.deadline is not None:
            left = max(sequence.request.deadline - time.monotonic(), 0.0)
            asyncio.get_running_loop().call_later(left, self._expire, sequence)

    def _expire(self, sequence: Sequence) -> None:
        """The deadline has passed: nothing changes if the request has begun to run, or has ended."""
        if sequence in self._waiting:
            self._counters.deadlines_passed += 1
            again = retry_after(self._place_wait(1))
            reason, why = FinishReason.EXPIRED, DEADLINE_PASSED
            self._deliver(
                sequence, RequestOutput(sequence.request.id, (), reason, detail=why, retry_after=again)
            )

    def _observe(self) -> None:
        """Must be called before the number of running requests changes."""
        now = asyncio.get_running_loop().time()
        self._lives.observe(self._running, now - self._observed)
        self._observed = now

    def _place_wait(self, places: int) -> float:
        """Estimated as in the engine's scheduler; a step is the time of a token."""
        self._observe()
        running = [one for one in self._sequences.values() if one.task is not None]
        fewest = min((one.request.sampling.max_tokens - one.generated for one in running), default=0)
        return place_wait(self._lives.mean_life, len(running), fewest, self._behaviour.itl, places)

    def _run(self, sequence: Sequence) -> None:
        self._observe()
        sequence.began = time.monotonic()
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
            self._counters.count_step(1 if position else len(request.prompt))
            self._counters.generated_tokens += 1
            finish = last if position + 1 == len(tokens) else None
            output = scored(request, position, tokens[position], finish)
            if not position:
                output = timed(output, began=sequence.began, first_token=time.monotonic())
            self._deliver(sequence, output)

    def _deliver(self, sequence: Sequence, output: RequestOutput) -> None:
        sequence.stream.deliver(output)
        if output.finish is not None:
            self._leave(sequence)

    def _forget(self, stream: EngineStream) -> None:
        """This answer's outputs are not read any more."""
        sequence = self._sequences.get(stream)
        if sequence is not None:
            if sequence.task is not None:
                sequence.task.cancel()
            self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Make room: the first waiting request runs."""
        if sequence.task is not None and sequence.stream in self._sequences:
            self._observe()
            self._lives.end()
        self._sequences.pop(sequence.stream, None)
        self._waiting.discard(sequence)
        while (first := self._waiting.first) is not None and self._running < self._limits.max_num_seqs:
            self._waiting.remove(first)
            self._run(first)
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
