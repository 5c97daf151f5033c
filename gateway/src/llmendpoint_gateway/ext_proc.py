"""The decision for each request: one ext_proc stream per request.

A stream lives as long as its request, so a replica's requests in flight are its open streams: the count ends with
the answer's last byte, an error, or the client's disconnect alike.
"""

import time
from dataclasses import dataclass

import orjson

from llmendpoint_gateway import messages
from llmendpoint_gateway.control import Control
from llmendpoint_gateway.core.pick import Picked, Rejected, starting
from llmendpoint_gateway.core.replies import bad_request, model_list, one_model, unknown_path
from llmendpoint_gateway.core.request import Asked, ByModel, ByPath, GetModel, ListModels, Unknown, read_path
from llmendpoint_gateway.core.wire import Stream
from llmendpoint_gateway.errors import BadRequest
from llmendpoint_gateway.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Undecided:
    """A request whose headers are known and whose body is awaited."""

    method: str
    path: str
    asked: Asked


class Picker:
    """What is done with ext_proc's streams. A stream's `state` is None, then Undecided, then Picked, where it is."""

    def __init__(self, control: Control, metrics: Metrics) -> None:
        self._control = control
        self._metrics = metrics

    def message(self, stream: Stream, message: bytes) -> None:
        """The headers, and then the body where one is needed."""
        if isinstance(stream.state, Undecided):
            self._answer(stream, stream.state, messages.read_body(message))
            return
        method, path, body_follows = messages.read_headers(message)
        request = Undecided(method, path, read_path(method, path))
        if body_follows and isinstance(request.asked, ByModel | ByPath):
            stream.state = request
            stream.send(messages.CONTINUE)
        else:
            self._answer(stream, request, None)

    def ended(self, stream: Stream) -> None:
        """The request's end, an error or the client's disconnect: its place in the count is free."""
        if isinstance(stream.state, Picked):
            self._control.release(stream.state)
        stream.state = None

    def _answer(self, stream: Stream, request: Undecided, body: bytes | None) -> None:
        start = time.perf_counter()
        asked = request.asked
        decision = self._decide(request.method, request.path, asked, body)
        if isinstance(decision, Picked):
            path = asked.path if isinstance(asked, ByPath) else None
            reply = messages.route_to(
                decision.cluster, decision.addresses, path, body is not None, decision.trial
            )
            outcome, stream.state = "picked", decision
            self._control.take(decision)
        elif isinstance(decision, Rejected):
            outcome, reply = decision.code, messages.refuse(decision)
        else:
            outcome, reply = "answered", messages.answer(200, orjson.dumps(decision))
        self._metrics.decided(outcome, time.perf_counter() - start)
        stream.send(reply)

    def _decide(
        self, method: str, path: str, asked: Asked, body: bytes | None
    ) -> Picked | Rejected | dict[str, object]:
        match asked:
            case ListModels() | GetModel() if not self._control.started:
                return starting()
            case ByModel():
                try:
                    return self._control.pick(messages.read_model(body or b""))
                except BadRequest as error:
                    return bad_request(str(error))
            case ByPath(endpoint):
                return self._control.pick(endpoint)
            case ListModels():
                return model_list(self._control.view)
            case GetModel(name):
                return one_model(name, self._control.view)
            case Unknown():
                return unknown_path(method, path)
