"""The decision for each request: one ext_proc stream per request. Without a replica that has room for it, it waits.

A stream lives as long as its request, so a replica's requests in flight are its open streams: the count ends with
the answer's last byte, an error, or the client's disconnect alike.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from llmendpoint_gateway import messages
from llmendpoint_gateway.core.pick import Picked, Rejected, poisoned, queue_full, starting
from llmendpoint_gateway.core.replies import bad_request, model_list, one_model, unknown_path
from llmendpoint_gateway.core.request import Asked, ByModel, ByPath, GetModel, ListModels, Unknown, read_path
from llmendpoint_gateway.core.wire import Stream
from llmendpoint_gateway.errors import BadRequest
from llmendpoint_gateway.metrics import Metrics
from llmendpoint_gateway.placement import Placement

Decision = Picked | Rejected | dict[str, object]


MARGIN_SECONDS = 5.0  # between our answer and Envoy's patience

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after some seconds, as an event loop's `call_later`."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A request whose headers are known and whose body is awaited. `headers`: the message that they came in, of which
    the rest is read when the request must wait."""

    method: str
    path: str
    asked: Asked
    headers: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A request that waits for a replica of `endpoint`, which it asked for by `name`; `since` in seconds, monotonic.
    `print_`: of its body, None without one."""

    stream: Stream
    request: Undecided
    endpoint: str
    name: str
    print_: str | None
    timer: asyncio.TimerHandle
    since: float


class Picker:
    """What is done with ext_proc's streams. A stream's `state` is None, then Undecided, then Held where there is no
    replica yet, then Picked, where it is."""

    def __init__(self, placement: Placement, metrics: Metrics, later: Later) -> None:
        self._placement = placement
        self._poison = placement.poison
        self._metrics = metrics
        self._later = later
        placement.on_table, placement.on_room = self._retry_all, self._retry

    def message(self, stream: Stream, message: bytes) -> None:
        """The headers, and then the body where one is needed."""
        if isinstance(stream.state, Undecided):
            self._decide(stream, stream.state, messages.read_body(message))
            return
        method, path, body_follows = messages.read_headers(message)
        request = Undecided(method, path, read_path(method, path), message)
        if body_follows and isinstance(request.asked, ByModel | ByPath):
            stream.state = request
            stream.send(messages.CONTINUE)
        else:
            self._decide(stream, request, None)

    def ended(self, stream: Stream) -> None:
        """The request's end, an error or the client's disconnect: its place in the count is free."""
        if isinstance(stream.state, Picked):
            self._placement.release(stream.state)
        elif isinstance(stream.state, Held):
            self._forget(stream.state)
        stream.state = None

    def _decide(self, stream: Stream, request: Undecided, body: bytes | None) -> None:
        start = time.perf_counter()
        asked = request.asked
        name = ""
        decision: Decision
        match asked:
            case ListModels() | GetModel() if not self._placement.started():
                decision = starting()
            case ByModel():
                try:
                    name = messages.read_model(body or b"")
                    decision = self._placement.pick(name)
                except BadRequest as error:
                    decision = bad_request(str(error))
            case ByPath(endpoint):
                name = endpoint
                decision = self._placement.pick(name)
            case ListModels():
                decision = model_list(self._placement.view)
            case GetModel(model):
                decision = one_model(model, self._placement.view)
            case Unknown():
                decision = unknown_path(request.method, request.path)
        print_ = None if body is None else messages.print_of(body)
        if self._poisons(print_, decision):
            decision = poisoned()
        if isinstance(decision, Rejected) and self._hold(
            stream, request, name, print_, len(body or b""), decision
        ):
            return
        self._answer(stream, request, print_, decision, start)

    def _poisons(self, print_: str | None, decision: Decision) -> bool:
        """Whether it would place a request, now or once it has waited, with which two replicas went down."""
        placed = isinstance(decision, Picked) or (
            isinstance(decision, Rejected) and decision.awaited is not None
        )
        return placed and print_ is not None and self._poison.refused(print_, self._placement.now())

    def _answer(
        self, stream: Stream, request: Undecided, print_: str | None, decision: Decision, start: float
    ) -> None:
        if isinstance(decision, Picked):
            reply = self._route(request, print_, decision)
            outcome, stream.state = "picked", decision
            self._placement.take(decision)
        elif isinstance(decision, Rejected):
            outcome, reply = decision.code, messages.refuse(decision)
        else:
            outcome, reply = "answered", messages.answer(200, orjson.dumps(decision))
        self._metrics.decided(outcome, time.perf_counter() - start)
        stream.send(reply)

    def _route(self, request: Undecided, print_: str | None, picked: Picked) -> bytes:
        path = request.asked.path if isinstance(request.asked, ByPath) else None
        mark = messages.TRIAL if picked.trial else None
        if mark is None and print_ is not None and self._poison.suspected(print_):
            mark = messages.WATCHED
        with_body = print_ is not None
        reply = messages.route_to(picked.cluster, picked.addresses, path, with_body, mark, picked.first_byte)
        return reply if print_ is None else messages.printed(reply, print_)

    def _hold(
        self, stream: Stream, request: Undecided, name: str, print_: str | None, size: int, none: Rejected
    ) -> bool:
        """Let it wait where a replica will come or have room; when none has in time, `none` is the answer."""
        endpoint = none.awaited
        if endpoint is None:
            return False
        seconds = self._placement.patience(endpoint)
        if seconds <= 0:
            return False

        def expire() -> None:
            self._forget(held)
            self._release(held, none)

        timer = self._later(seconds, expire)
        held = Held(stream, request, endpoint, name, print_, timer, time.monotonic())
        claim = messages.read_claim(request.headers, size)
        admission = self._placement.wait(endpoint, held, claim)
        if not admission.admitted:
            timer.cancel()
            self._answer(stream, request, print_, self._full(endpoint), time.perf_counter())
            return True
        stream.state = held
        stream.send(messages.wait(seconds + MARGIN_SECONDS))
        if admission.displaced is not None:
            admission.displaced.timer.cancel()
            self._release(admission.displaced, self._full(admission.displaced.endpoint))
        return True

    def _full(self, endpoint: str) -> Rejected:
        waiting = self._placement.waiting
        return queue_full(endpoint, waiting.count(endpoint), waiting.seconds(endpoint))

    def _retry_all(self) -> None:
        """Replicas may have come, or requests may go elsewhere."""
        for endpoint in self._placement.waiting:
            self._retry(endpoint)

    def _retry(self, endpoint: str) -> None:
        """There may be room: who waits for it goes on, in turn."""
        while (held := self._placement.waiting.first(endpoint)) is not None:
            decision = self._placement.pick(held.name)
            if self._poisons(held.print_, decision):
                decision = poisoned()
            if isinstance(decision, Rejected) and decision.awaited == endpoint:
                return
            held.timer.cancel()
            seconds = time.monotonic() - held.since
            self._placement.serve(endpoint, held, seconds)
            self._metrics.waited(seconds)
            self._release(held, decision)

    def _release(self, held: Held, decision: Picked | Rejected) -> None:
        """The answer for who waits no longer."""
        held.stream.state = None
        self._answer(held.stream, held.request, held.print_, decision, time.perf_counter())

    def _forget(self, held: Held) -> None:
        held.timer.cancel()
        self._placement.leave(held.endpoint, held)
