"""The same server as a foreign engine: /health and OpenAI's API, but no report of readiness."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llmendpoint_server.api.responses import RETRIABLE, error_body, json_response

OURS = ("/ready", "/load", "/version")


class Foreign:
    """ASGI middleware: hides what only this project's server has. /health is 200 from the start, long before the first
    token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in OURS:
            missing = error_body(f"{scope['path']}: Not Found", "invalid_request_error")
            await json_response(missing, 404)(scope, receive, send)
            return

        async def send_without_our_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                message["headers"] = [pair for pair in headers if pair[0] != RETRIABLE.encode()]
            await send(message)

        await self._app(scope, receive, send_without_our_header)
