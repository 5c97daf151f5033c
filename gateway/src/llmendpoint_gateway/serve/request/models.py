"""`GET /v1/models`: made once for each change of the names, not for each request."""

import orjson

from llmendpoint_gateway.core.endpoint.model_objects import model_list
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.serve.request import writing


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
