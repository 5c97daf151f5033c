"""The steps of a request: identify, admit, resolve, place; without a replica that has room it waits; at its end,
settle.

| step | what | where |
|---|---|---|
| identify | the caller, whether its key is valid, and what it asks for | serve/request/reading.py, serve/identity/gate.py |
| admit | whether it may pass | core/request/admit.py |
| resolve | the endpoint that its model name means, to this caller | core/endpoint/permits.py, core/placement/pick.py |
| place | the replica that gets it | core/placement/pick.py |
| wait | until a replica has room | serve/request/held.py, core/placement/waiting.py |
| settle | how it ended | serve/outcome/outcomes.py, core/placement/settle.py |

Each request is one ext_proc stream, which lives as long as the request. So a replica's requests in flight are its open
streams: the count falls with the answer's last byte, an error, or the client's disconnect alike. An exception affects
one request: it is answered with 500, and nothing else ends.
"""

import time
from collections.abc import Callable
from functools import partial

import orjson
import structlog

from llmendpoint_gateway.core.endpoint.model_objects import one_model
from llmendpoint_gateway.core.endpoint.names import Meant
from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.outcome.attempt import Ended
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.placement import Placed, Placement
from llmendpoint_gateway.core.request.admit import admit
from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.core.request.paths import ByModel, ByPath, GetModel, ListModels
from llmendpoint_gateway.core.request.refusals import Rejected, starting
from llmendpoint_gateway.core.request.request import Head, Request, has_prompt
from llmendpoint_gateway.serve.identity.gate import Gate
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.request import writing
from llmendpoint_gateway.serve.request.answers import Answers
from llmendpoint_gateway.serve.request.held import Held, HeldRequests
from llmendpoint_gateway.serve.request.models import ModelList, ModelLists
from llmendpoint_gateway.serve.request.reading import read_body, read_head
from llmendpoint_gateway.serve.traces.traces import Traces

log = structlog.get_logger()


class Picker:
    """Handles ext_proc's streams. A stream's `state` is None, then its Head, then Held if it has no replica yet, then
    Placed."""

    def __init__(
        self,
        placement: Placement,
        answers: Answers,
        held: HeldRequests,
        outcomes: Outcomes,
        clock: Callable[[], float],
        traces: Traces,
        trusted_hops: int = 0,
        gate: Gate | None = None,
    ) -> None:
        self._placement, self._answers, self._held, self._outcomes = placement, answers, held, outcomes
        self._clock, self._traces, self._trusted_hops = clock, traces, trusted_hops
        self._gate = gate
        self._models = ModelList()
        self._lists = ModelLists(gate.permits) if gate else None

    def message(self, stream: Stream, message: bytes) -> None:
        """The headers, and then the body if one is needed."""
        try:
            request = self._identify(stream, message)
            if request is not None:
                self._decide(stream, request)
        except Exception:  # any: callers write these bytes; only this request fails
            self._answers.fail(stream)
            self.ended(stream)

    def ended(self, stream: Stream) -> None:
        """The request has ended, failed, or lost its client: free its place."""
        self._traces.end(stream)
        state, stream.state = stream.state, None
        try:
            if isinstance(state, Placed):
                self._outcomes.settle(Ended(state.tag.ticket))
            elif isinstance(state, Held):
                self._held.leave(state)
        except Exception:  # any: the stream ends anyway; only its own count may be wrong
            log.exception("the end of a request was not counted")

    def _identify(self, stream: Stream, message: bytes) -> Request | None:
        """None if the body is still to come."""
        if isinstance(stream.state, Head):
            return Request(stream.state, scan(read_body(message), has_prompt(stream.state)))
        head = read_head(message, self._trusted_hops, self._placement.view.paths, self._gate)
        if isinstance(head.who, Rejected):
            self._traces.begin(stream, head)
            self._answers.give(stream, Request(head), head.who, time.perf_counter())
            return None
        if not head.bodiless:  # otherwise Envoy asks again, about the same request with its body
            self._traces.begin(stream, head)
            stream.state = head if head.body_follows and isinstance(head.asked, (ByModel, ByPath)) else None
        if head.bodiless or stream.state is head:
            stream.send(writing.CONTINUE + (writing.of_key(head.key) if head.key else b""))
            return None
        return Request(head, None if head.body_follows else scan(b""))

    def _decide(self, stream: Stream, request: Request) -> None:
        """Admit the request, resolve its endpoint and place it. If no replica has room now, it waits."""
        start, asked = time.perf_counter(), request.head.asked
        if isinstance(asked, (ListModels, GetModel)):
            self._answers.give(stream, request, self._list(asked, request.head.who), start)
            return
        name = self._resolve(request)
        if isinstance(name, Rejected):
            self._answers.give(stream, request, name, start)
            return
        if isinstance(name, Meant) and isinstance(who := request.head.who, Identity) and who.key:
            request = request.by(who.caller_at(name.key.partition("/")[0]))
        decision = self._placement.place(name, self._clock(), request.caller, request.print_, request.prompt)
        if isinstance(decision, Picked) or not self._held.hold(stream, request, name, decision):
            self._answers.give(stream, request, decision, start)
        else:
            self._traces.wait(stream)

    def _resolve(self, request: Request) -> str | Meant | Rejected:
        """The name of the endpoint; where keys are looked at, the endpoint that it means to this caller."""
        view, who, asked = self._placement.view, request.head.who, request.head.asked
        known = who if self._gate and self._placement.started and isinstance(who, Identity) else None
        name: str | Meant | Rejected = admit(request, partial(self._takes, known) if known else view.takes)
        if isinstance(name, Rejected):
            return name
        if isinstance(asked, ByPath) and request.body is not None:
            name = view.with_adapter(asked.endpoint, request.body.model)
        return name if known is None or self._gate is None else self._gate.resolve(name, known, self._clock())

    def _takes(self, who: Identity, name: str, declared: str) -> bool:
        """As `View.takes`. What the caller may not use is as unknown as what does not exist."""
        meant = self._gate.permits.meaning(name, who, self._clock()) if self._gate else None
        return meant is None or self._placement.view.takes(meant.key, declared)

    def _list(self, asked: ListModels | GetModel, who: Identity | Rejected | None) -> Rejected | bytes:
        """All models that the caller may use, or one of them."""
        view = self._placement.view
        if not self._placement.started:
            return starting()
        if self._lists is not None and self._gate is not None and isinstance(who, Identity):
            if isinstance(asked, ListModels):
                return self._lists.answer(who)
            return self._lists.one(asked.name, who, self._clock()) or self._gate.forbid(who)
        if isinstance(asked, ListModels):
            return self._models.answer(view)
        found = one_model(asked.name, view)
        return found if isinstance(found, Rejected) else writing.answer(200, orjson.dumps(found))
