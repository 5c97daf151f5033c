"""`GET /v1/models`: made once for each change of what it lists, not for each request."""

import orjson

from llmendpoint_gateway.core.endpoint.model_objects import model_list
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.serve.request import writing


class ModelList:
    def __init__(self) -> None:
        self._view: View | None = None
        self._listed: object = None
        self._answer = b""

    def answer(self, view: View) -> bytes:
        """A view is new with every change of a replica; the list only with the names and whose they are."""
        if view is not self._view:
            listed = view.names, {key: endpoint.created for key, endpoint in view.endpoints.items()}
            if listed != self._listed:
                self._answer = writing.answer(200, orjson.dumps(model_list(view)))
            self._view, self._listed = view, listed
        return self._answer
