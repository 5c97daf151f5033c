"""The engine process, seen from the API process: starts it, sends it requests, reads its outputs, and notices its end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterable, Sequence
from typing import cast

import structlog

from llmendpoint_server import protocol
from llmendpoint_server.api.adapter_calls import AdapterCalls
from llmendpoint_server.api.engine_process import ENGINE_COMMAND, exit_code, reap, spawn
from llmendpoint_server.api.engine_stream import EngineStream, VectorStream, streams_of
from llmendpoint_server.core.pooling.request import PoolingRequest, Vector
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.watchdog import Watchdog
from llmendpoint_server.errors import EngineFailed, ProtocolError, QueueFull, Unavailable
from llmendpoint_server.exits import EngineEnd

CAUSE_WAIT_S = 1.0
"""Open requests wait this long for the exit code, so that their error can name it."""
MOST_UNREAD_BYTES = 64 * 2**20
"""Largest backlog of messages to the engine process, which reads between two steps."""
MANY_STREAMS = 32
TURN_SECONDS = 0.02
"""With many streams, each gets its tokens this often at most: what a write to a caller costs is then paid once for
several tokens. It has an effect only if steps are faster than this."""


class EngineClient(asyncio.Protocol):
    """One engine process over one socket. All methods are for the event loop's thread."""

    def __init__(
        self, configure: protocol.Configure, step_timeout: float, command: Sequence[str] = ENGINE_COMMAND
    ) -> None:
        self._configure = configure
        self._command = tuple(command)
        self._reader = protocol.ApiReader()
        self._streams: dict[str, EngineStream] = {}
        """by the request's id: that of its first answer"""
        self._due: list[EngineStream] = []
        """those whose tokens wait for the next turn"""
        self._next_turn = 0.0
        self._turn_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._last_word: protocol.StateChanged | None = None
        self._watchdog = Watchdog(step_timeout)
        self._stopping = False
        self._adapters = AdapterCalls(self._send)
        self.load_adapter, self.unload_adapter = self._adapters.load, self._adapters.unload
        self.state: protocol.State = "loading"
        self.detail = "starting the engine process"
        self.loaded: protocol.Loaded | None = None
        self.stats = protocol.Stats()
        self.idle = asyncio.Event()
        self.idle.set()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[EngineEnd] = self._loop.create_future()

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._process = spawn(self._command, theirs)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, sock=ours)
        self._send(self._configure)

    # What the API asks

    @property
    def in_flight(self) -> int:
        return len(self._streams)

    def submit(self, request: Request) -> EngineStream:
        """Send a request to the engine. Returns the stream of its first answer. Raises Unavailable if this replica takes no requests, QueueFull if the backlog
        of messages is full, EngineFailed if the request cannot be encoded. After an error nothing is registered."""
        self._offer(request.id, protocol.AddRequest(request))
        stream = streams_of(request.id, request.n, self._forget)
        self._register(stream)
        return stream

    def submit_inputs(self, request: PoolingRequest) -> VectorStream:
        """`submit`, for a model that makes vectors."""
        self._offer(request.id, protocol.AddInputs(request))
        stream = VectorStream(request.id, len(request.inputs), self._forget)
        self._register(stream)
        return stream

    def _register(self, stream: EngineStream) -> None:
        self._streams[stream.id] = stream
        self.idle.clear()

    def _offer(self, request_id: str, message: protocol.AddRequest | protocol.AddInputs) -> None:
        transport = self._transport
        if self.state != "ready" or transport is None or transport.is_closing():
            raise Unavailable(f"This replica is {self.state}: {self.detail}. Try again.", retry_after=1.0)
        try:
            frame = protocol.encode(message)
        except Exception as error:  # any: msgspec raises many types; this request fails
            structlog.get_logger().error("a request cannot be encoded", id=request_id, error=str(error))
            raise EngineFailed(
                f"The request cannot be handed to the engine: {type(error).__name__}."
            ) from error
        if transport.get_write_buffer_size() + len(frame) > MOST_UNREAD_BYTES:
            raise QueueFull(
                "The engine is busy: its backlog of requests is full. Try again.", retry_after=1.0
            )
        transport.write(frame)

    def _forget(self, stream: EngineStream) -> None:
        if self._streams.get(stream.id) is not stream.answers[0]:
            return
        if not stream.ended:
            index = stream.index if len(stream.answers) > 1 else None
            self._send(protocol.AbortRequest(stream.id, index))
        if all(answer.closed for answer in stream.answers):
            del self._streams[stream.id]
            if not self._streams:
                self.idle.set()

    def drain(self) -> None:
        """Refuse new requests at once. Running ones go on."""
        if self.state in ("draining", "failed"):
            return
        self.state, self.detail = "draining", "shutting down"
        self._send(protocol.Drain())

    def fail_all(self, detail: str) -> None:
        """End every open stream with `detail`. A stream without a token is rejected, so that another replica may take
        the request. If the engine has failed it counts as failed instead, because that request may be the cause."""
        self._hand_over()
        well = self.failure() is None
        for stream in [answer for first in self._streams.values() for answer in first.answers]:
            reason = FinishReason.REJECTED if well and not stream.begun else FinishReason.FAILED
            stream.deliver(RequestOutput(stream.id, (), reason, detail=detail))

    def failure(self) -> str | None:
        """Why the engine makes no progress; None while it does."""
        if self.ended.done() or self.state == "failed":
            return self.detail
        return self._watchdog.stuck(self._loop.time())

    async def stop(self) -> None:
        """End the engine process. It exits when its socket closes, and is killed if it does not. A stuck process is
        killed at once."""
        self._adapters.fail("The server is shutting down.")
        self._stopping = True
        if self._process is not None and self.failure() is not None:
            self._process.kill()
        if self._transport is not None:
            self._transport.close()
        if self._process is not None:
            await asyncio.to_thread(reap, self._process)

    # What the engine says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are not subclasses.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        self._watchdog.hear(now)
        try:
            for message in self._reader.feed(data):
                if isinstance(message, protocol.StepOutput):
                    self._hold(message.outputs)
                elif isinstance(message, protocol.Vectors):
                    self._keep(message.vectors)
                else:
                    self._take(message)
        except ProtocolError as error:
            structlog.get_logger().error("the engine process sent what is no message", error=str(error))
            if self._transport is not None:
                self._transport.abort()
        if len(self._streams) < MANY_STREAMS or now >= self._next_turn:
            self._hand_over()
        elif self._turn_timer is None:
            self._turn_timer = self._loop.call_at(self._next_turn, self._hand_over)

    def _hold(self, outputs: Iterable[RequestOutput]) -> None:
        """Keep the tokens for the next turn. The first output and the last one of a request do not wait."""
        streams, due = self._streams, self._due
        for output in outputs:
            stream = streams.get(output.id)
            if stream is None:
                continue
            if output.index:
                stream = stream.answers[output.index]
            if stream.begun and output.finish is None:
                if not stream.waiting:
                    due.append(stream)
                stream.keep(output)
            else:
                stream.deliver(output)

    def _keep(self, vectors: Iterable[Vector]) -> None:
        for vector in vectors:
            stream = self._streams.get(vector.id)
            if isinstance(stream, VectorStream):
                stream.take(vector)

    def _hand_over(self) -> None:
        """A turn: each stream gets all that waits for it, as one output."""
        if self._turn_timer is not None:
            self._turn_timer.cancel()
            self._turn_timer = None
        self._next_turn = self._loop.time() + TURN_SECONDS
        due, self._due = self._due, []
        for stream in due:
            if not stream.closed:
                stream.hand_over()

    def _take(
        self, message: protocol.Stats | protocol.Loaded | protocol.StateChanged | protocol.AdapterChanged
    ) -> None:
        match message:
            case protocol.Stats():
                self.stats = message
                requests = message.waiting + message.running
                self._watchdog.count(message.counters.steps, requests, self._loop.time())
            case protocol.AdapterChanged():
                self._adapters.take(message)
            case protocol.Loaded():
                self.loaded = message
            case protocol.StateChanged(state=state, detail=detail):
                self._last_word = message
                if state == "ready":
                    self._watchdog.start(self._loop.time())
                # Once draining, only a failure matters: the engine's message may be older than the drain.
                if self.state != "draining" or state == "failed":
                    self.state, self.detail = state, detail or state
                    structlog.get_logger().info(f"engine: {state}", detail=detail)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopping:  # from now on nothing reaches the engine, so no request may be accepted
            word = self._last_word
            told = word is not None and word.state == "failed"
            self.state = "failed"
            self.detail = (
                word.detail
                if word is not None and told
                else f"The engine process has gone while {self._doing}."
            )
            self.stats = protocol.Stats()
            self._adapters.fail(self.detail)
            if told:
                self.fail_all(self.detail)
        # A thread reaps the process, because it may outlive its connection for a while.
        self._ending = asyncio.get_running_loop().create_task(self._after_the_end())

    @property
    def _doing(self) -> str:
        return "serving" if self.loaded else "loading the model"

    async def _after_the_end(self) -> None:
        process = self._process
        code = 1 if process is None else await asyncio.to_thread(exit_code, process, CAUSE_WAIT_S)
        if code is None and not self._stopping:
            self.fail_all(self.detail)
        if code is None and process is not None:
            code = await asyncio.to_thread(reap, process)
        if self._stopping:
            self.ended.cancel()
            return
        end = self._end(code or 0)
        self.detail = end.cause
        self.fail_all(end.cause)
        self.ended.set_result(end)

    def _end(self, code: int) -> EngineEnd:
        word = self._last_word
        if word is not None and word.state == "failed":
            return EngineEnd(word.detail, word.exit_code or 1)
        how = f"was killed by signal {-code}" if code < 0 else f"left with exit code {code}"
        return EngineEnd(f"The engine process {how} while {self._doing}.", 1)

    def _send(self, message: protocol.ToEngine) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(protocol.encode(message))
