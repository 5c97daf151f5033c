"""What Envoy is told about a request: its replica, or the gateway's own answer."""

import time
from collections.abc import Callable

import structlog

from llmendpoint_gateway.core.envoy.resources import KEPT_HEADER, PRIORITY_HEADER
from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.placement import Placed, Placement
from llmendpoint_gateway.core.request.paths import ByPath, Socket
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.core.request.replies import failed
from llmendpoint_gateway.core.request.request import Request
from llmendpoint_gateway.core.request.trace_context import TRACEPARENT
from llmendpoint_gateway.serve.metrics import Metrics
from llmendpoint_gateway.serve.request import writing
from llmendpoint_gateway.serve.traces.traces import Traces

Decision = Picked | Rejected | bytes
"""A replica, an error, or the bytes of an answer."""

TOTAL_SECONDS = 3600.0
"""The limit for a whole answer that is not a stream. In a stream each part may take as long (core/envoy/listener.py)."""
LOW = Priority.LOW.name.lower()
log = structlog.get_logger()


class Answers:
    """`clock`: seconds, monotonic. A stream's `state` is its Placed, once it has a replica."""

    def __init__(
        self, placement: Placement, metrics: Metrics, clock: Callable[[], float], traces: Traces
    ) -> None:
        self._placement, self._metrics, self._clock, self._traces = placement, metrics, clock, traces

    def give(self, stream: Stream, request: Request, decision: Decision, start: float) -> None:
        """`start`: when the decision began, by time.perf_counter."""
        if isinstance(decision, Picked):
            stream.state = placed = self._placement.take(decision, request, self._clock())
            parent = self._traces.place(stream, request.head, placed)
            outcome, reply = "picked", self._route(request, placed, parent)
        elif isinstance(decision, Rejected):
            outcome, reply = decision.code, writing.refuse(decision)
            if decision.endpoint:
                self._metrics.refusals.count(decision.endpoint, outcome)
            self._traces.answer(stream, outcome, decision.status)
        else:
            outcome, reply = "answered", decision
            self._traces.answer(stream, outcome, 0)
        self._metrics.decided(outcome, time.perf_counter() - start)
        # With a body, Envoy has been told before.
        head = request.head
        if head.key and (request.body is None or not head.body_follows):
            reply += writing.of_key(head.key)
        stream.send(reply)

    def fail(self, stream: Stream) -> None:
        """Answer 500 after an unexpected exception. The stream's end frees what the request holds."""
        log.exception("a request was answered with 500")
        rejected = failed()
        self._metrics.decided(rejected.code, 0.0)
        self._traces.answer(stream, rejected.code, rejected.status)
        stream.send(writing.refuse(rejected))

    def _route(self, request: Request, placed: Placed, traceparent: str | None) -> bytes:
        """An answer that is not a stream begins when it is complete, so only its whole time can be limited."""
        picked, head = placed.picked, request.head
        mark = writing.TRIAL if picked.trial else None
        if mark is None and self._placement.poison.suspected(picked.endpoint, request.print_):
            mark = writing.WATCHED
        first_byte, total = (picked.first_byte, None) if request.stream else (None, TOTAL_SECONDS)
        if request.socket:
            total = None  # it may stay open
        with_body = head.body_follows
        more = {}
        if isinstance(head.asked, (ByPath, Socket)):
            more[":path"] = head.asked.path
        if head.priority is Priority.LOW and head.key:
            more[PRIORITY_HEADER] = LOW  # perhaps the key's, while the request asks for another
        if placed.kept:
            more[KEPT_HEADER] = "1"
        if traceparent is not None:
            more[TRACEPARENT] = traceparent
        reply = writing.route_to(picked.cluster, picked.addresses, with_body, mark, first_byte, total)
        return writing.tagged(reply, placed.tag, with_body, more)
