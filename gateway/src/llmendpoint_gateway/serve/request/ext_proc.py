"""The decision for each request: one ext_proc stream per request. Without a replica that has room for it, it waits.

A stream lives as long as its request, so a replica's requests in flight are its open streams: the count ends with
the answer's last byte, an error, or the client's disconnect alike. An exception is one request's: it is answered with
500, and nothing else ends.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson
import structlog

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS
from llmendpoint_gateway.core.endpoint.model_objects import one_model
from llmendpoint_gateway.core.envoy.resources import KEPT_HEADER
from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.request.admit import admit
from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.core.request.paths import ByModel, ByPath, GetModel, ListModels
from llmendpoint_gateway.core.request.refusals import Rejected, queue_full, starting, unknown_model
from llmendpoint_gateway.core.request.replies import failed
from llmendpoint_gateway.core.request.request import Head, Request
from llmendpoint_gateway.serve.metrics import Metrics
from llmendpoint_gateway.serve.placement.placement import Placed, Placement
from llmendpoint_gateway.serve.request import writing
from llmendpoint_gateway.serve.request.models import ModelList
from llmendpoint_gateway.serve.request.reading import read_body, read_head

Decision = Picked | Rejected | bytes
"""A replica, an error, or an answer."""

MARGIN_SECONDS = 5.0  # between our answer and Envoy's patience
TOTAL_SECONDS = 3600.0
"""Until which an answer that is no stream is to be there. Of a stream each part may take as long (core/envoy/listener.py)."""

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after some seconds, as an event loop's `call_later`."""
log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Held:
    """A request that waits for a replica of `endpoint`, which it asked for by `name`; `since` in seconds, monotonic,
    and `until`, for which Envoy was told to wait. `none`: its answer where none comes."""

    stream: Stream
    request: Request
    endpoint: str
    name: str
    none: Rejected
    timer: asyncio.TimerHandle
    since: float
    until: float


class Picker:
    """What is done with ext_proc's streams. A stream's `state` is None, then its Head, then Held where there is no
    replica yet, then Placed, where it is."""

    def __init__(self, placement: Placement, metrics: Metrics, later: Later, trusted_hops: int = 0) -> None:
        self._placement = placement
        self._metrics = metrics
        self._later = later
        self._trusted_hops = trusted_hops
        self._models = ModelList()
        placement.on_table, placement.on_room = self._retry_all, self._retry

    def message(self, stream: Stream, message: bytes) -> None:
        """The headers, and then the body where one is needed."""
        try:
            self._message(stream, message)
        except Exception:  # any: callers write these bytes; this request fails, and no other stream
            self._fail(stream)

    def ended(self, stream: Stream) -> None:
        """The request's end, an error or the client's disconnect: its place in the count is free."""
        state, stream.state = stream.state, None
        try:
            if isinstance(state, Placed):
                self._placement.release(state)
            elif isinstance(state, Held):
                self._forget(state)
        except Exception:  # any: the stream ends all the same, and only its own count may be off
            log.exception("the end of a request was not counted")

    def _message(self, stream: Stream, message: bytes) -> None:
        if isinstance(stream.state, Head):
            self._decide(stream, Request(stream.state, scan(read_body(message))))
            return
        head = read_head(message, self._trusted_hops, self._placement.view.paths)
        if head.body_follows and isinstance(head.asked, (ByModel, ByPath)):
            stream.state = head
            stream.send(writing.CONTINUE)
        else:
            self._decide(stream, Request(head, None if head.body_follows else scan(b"")))

    def _fail(self, stream: Stream) -> None:
        """An exception nobody thought of: the request gets an answer, and what was kept for it goes."""
        log.exception("a request was answered with 500")
        self.ended(stream)
        rejected = failed()
        self._metrics.decided(rejected.code, 0.0)
        stream.send(writing.refuse(rejected))

    def _decide(self, stream: Stream, request: Request) -> None:
        """Admit it, resolve its endpoint and place it; where none has room for it now, it waits."""
        start, asked = time.perf_counter(), request.head.asked
        if isinstance(asked, (ListModels, GetModel)):
            self._answer(stream, request, self._list(asked), start)
            return
        name = admit(request, self._placement.view.takes)
        if isinstance(name, Rejected):
            self._answer(stream, request, name, start)
            return
        decision = self._place(name, request)
        if isinstance(decision, Picked) or not self._hold(stream, request, name, decision):
            self._answer(stream, request, decision, start)

    def _list(self, asked: ListModels | GetModel) -> Rejected | bytes:
        """The models that there are, or one of them."""
        view = self._placement.view
        if not self._placement.started:
            return starting()
        if isinstance(asked, ListModels):
            return self._models.answer(view)
        found = one_model(asked.name, view)
        return found if isinstance(found, Rejected) else writing.answer(200, orjson.dumps(found))

    def _place(self, name: str, request: Request) -> Picked | Rejected:
        return self._placement.place(name, request.caller, request.print_)

    def _answer(self, stream: Stream, request: Request, decision: Decision, start: float) -> None:
        if isinstance(decision, Picked):
            placed = self._placement.take(decision, request)
            outcome, stream.state = "picked", placed
            reply = self._route(request, placed)
        elif isinstance(decision, Rejected):
            outcome, reply = decision.code, writing.refuse(decision)
        else:
            outcome, reply = "answered", decision
        self._metrics.decided(outcome, time.perf_counter() - start)
        stream.send(reply)

    def _route(self, request: Request, placed: Placed) -> bytes:
        """An answer that is no stream begins when it is complete: only its whole time can have a bound."""
        picked, head = placed.picked, request.head
        mark = writing.TRIAL if picked.trial else None
        if mark is None and self._placement.poison.suspected(picked.endpoint, request.print_):
            mark = writing.WATCHED
        first_byte, total = (picked.first_byte, None) if request.stream else (None, TOTAL_SECONDS)
        with_body = head.body_follows
        more = {}
        if isinstance(head.asked, ByPath):
            more[":path"] = head.asked.path
        if placed.kept:
            more[KEPT_HEADER] = "1"
        reply = writing.route_to(picked.cluster, picked.addresses, with_body, mark, first_byte, total)
        return writing.tagged(reply, placed.tag, with_body, more)

    def _hold(self, stream: Stream, request: Request, name: str, none: Rejected) -> bool:
        """Let it wait where a replica will come or have room; when none has in time, `none` is the answer."""
        endpoint = none.awaited
        if endpoint is None:
            return False
        seconds = self._placement.patience(endpoint)
        if seconds <= 0:
            return False
        timer = self._later(seconds, lambda: self._expire(held))
        longest, now = self._placement.longest_patience(endpoint), time.monotonic()
        held = Held(stream, request, endpoint, name, none, timer, now, now + longest)
        admission = self._placement.wait(endpoint, held, request.claim)
        if not admission.admitted:
            timer.cancel()
            self._answer(stream, request, self._full(endpoint), time.perf_counter())
            return True
        stream.state = held
        stream.send(writing.wait(longest + MARGIN_SECONDS))
        for displaced in admission.displaced:
            displaced.timer.cancel()
            self._release(displaced, self._full(displaced.endpoint))
        return True

    def _expire(self, held: Held) -> None:
        """It has waited as long as it may; for an endpoint that was deleted and is there again it goes on to wait."""
        if held.none.status == 404 and held.endpoint in self._placement.view.endpoints:
            decision = self._place(held.name, held.request)
            if isinstance(decision, Rejected) and decision.awaited == held.endpoint:
                self._wait_on(held, decision, self._placement.hold_seconds)
                return
        self._forget(held)
        self._release(held, held.none)

    def _wait_on(self, held: Held, none: Rejected, seconds: float) -> None:
        """For so long, within what Envoy was told; `none` is the answer then."""
        held.timer.cancel()
        held.none = none
        left = min(seconds, held.until - time.monotonic())
        held.timer = self._later(max(left, 0.0), lambda: self._expire(held))

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
            decision = self._place(held.name, held.request)
            if isinstance(decision, Rejected) and decision.awaited == endpoint:
                if decision.status == 404:
                    self._endpoint_gone(endpoint)
                return
            held.timer.cancel()
            seconds = time.monotonic() - held.since
            self._placement.serve(endpoint, held, seconds)
            self._metrics.waited(seconds)
            self._release(held, decision)

    def _endpoint_gone(self, endpoint: str) -> None:
        """It was deleted: who waits for it is told so, unless it is back in a moment."""
        for held in self._placement.waiting.items(endpoint):
            if held.none.status != 404:
                self._wait_on(held, replace(unknown_model(held.name), awaited=endpoint), GRACE_SECONDS)

    def _release(self, held: Held, decision: Picked | Rejected) -> None:
        """The answer for a request that waits no longer."""
        held.stream.state = None
        try:
            self._answer(held.stream, held.request, decision, time.perf_counter())
        except Exception:  # any: this request fails; whose turn is next goes on
            self._fail(held.stream)

    def _forget(self, held: Held) -> None:
        held.timer.cancel()
        self._placement.leave(held.endpoint, held)
