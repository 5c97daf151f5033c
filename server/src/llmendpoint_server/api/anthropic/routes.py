"""`/v1/messages` and `/v1/messages/count_tokens`. The headers `anthropic-version` and `x-api-key` are accepted, and not read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server.api.anthropic.bodies import CountBody, MessagesBody
from llmendpoint_server.api.anthropic.shapes import MessageShape, refusal
from llmendpoint_server.api.completions import Completions
from llmendpoint_server.api.preprocess import Preprocessor
from llmendpoint_server.api.responses import json_response
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.tasks import Handler, ready
from llmendpoint_server.errors import RequestError


class Messages:
    def __init__(self, service: Service, completions: Completions, preprocessor: Preprocessor) -> None:
        self._service, self._completions, self._preprocessor = service, completions, preprocessor

    async def create(self, request: Request) -> Response:
        return await self._completions.complete(request, MessagesBody, MessageShape, "msg_")

    async def count(self, request: Request) -> Response:
        ready(self._service)
        return json_response({"input_tokens": await self._preprocessor.count(CountBody, request)})


def with_its_errors(handler: Handler) -> Handler:
    """`handler`, with errors in Anthropic's shape."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            return refusal(error)

    return handle
