"""`GET /v1/models`: made once for each change of the names, not for each request."""

from collections import OrderedDict
from typing import NamedTuple

import orjson

from llmendpoint_gateway.core.endpoint.model_objects import model_list, model_object
from llmendpoint_gateway.core.endpoint.names import names_of
from llmendpoint_gateway.core.endpoint.permits import Permits
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.serve.request import writing

MOST_BYTES = 16 << 20
"""Of all callers' lists together."""


class ModelList:
    def __init__(self) -> None:
        self._names: object = None
        self._answer = b""

    def answer(self, view: View) -> bytes:
        """A view is new with every change of a replica. Its names change only if an endpoint comes, goes, claims other
        names or has other adapters."""
        if view.names is not self._names:
            self._names, self._answer = view.names, writing.answer(200, orjson.dumps(model_list(view)))
        return self._answer


class _Made(NamedTuple):
    generation: int
    who: Identity
    answer: bytes


class ModelLists:
    """The lists of callers with different permissions: each is that of a cluster with the caller's endpoints alone."""

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._made: OrderedDict[str, _Made] = OrderedDict()
        self._bytes = 0

    def answer(self, who: Identity) -> bytes:
        made = self._made.get(who.key)
        if made is None or made.who is not who or made.generation != self._permits.generation:
            answer = writing.answer(200, orjson.dumps(model_list(self._view(who))))
            made = self._keep(_Made(self._permits.generation, who, answer))
        self._made.move_to_end(who.key)
        return made.answer

    def one(self, name: str, who: Identity, now: float) -> bytes | None:
        """None: the caller may use no model of this name. `now`: seconds, monotonic."""
        meant = self._permits.meaning(name, who, now)
        endpoint = self._permits.endpoint(meant.key) if meant else None
        if meant is None or endpoint is None or (meant.adapter and meant.adapter not in endpoint.adapters):
            return None
        parent = name.removesuffix(f":{meant.adapter}") if meant.adapter else ""
        return writing.answer(200, orjson.dumps(model_object(name, endpoint, parent)))

    def _view(self, who: Identity) -> View:
        endpoints = {endpoint.key: endpoint for endpoint in self._permits.endpoints(who)}
        return View(endpoints=endpoints, names=names_of(endpoints.values()))

    def _keep(self, made: _Made) -> _Made:
        before = self._made.pop(made.who.key, None)
        self._bytes += len(made.answer) - (len(before.answer) if before else 0)
        self._made[made.who.key] = made
        while self._bytes > MOST_BYTES and len(self._made) > 1:
            self._bytes -= len(self._made.popitem(last=False)[1].answer)
        return made
