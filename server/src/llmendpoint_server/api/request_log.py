"""One log line per request, and the answer to an unexpected error."""

from __future__ import annotations

import time
import traceback
import uuid
from pathlib import Path
from typing import Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.record import Record
from llmendpoint_server.api.responses import error_body, json_response

QUIET = ("/health", "/ready", "/load", "/metrics")
"""Probes, pickers and scrapers ask these every second, so they get no log line."""
MAX_ID_LENGTH = 128
MAX_PATH_LENGTH = 256
SHOWN_FRAMES = 12


def _where(error: BaseException) -> list[str]:
    """The places in the code that led to the error, innermost last. Its message may hold the prompt, and is left out."""
    frames = traceback.extract_tb(error.__traceback__)[-SHOWN_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


class RequestLog:
    """ASGI middleware: gives a request its id (`x-request-id`, the caller's own or a new one) and its log line."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        http_id = given if given.isprintable() and 0 < len(given) <= MAX_ID_LENGTH else uuid.uuid4().hex
        record = scope.setdefault("state", {})["record"] = Record()
        started, status = time.monotonic(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", http_id.encode("latin-1")),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = 499
        except Exception as error:  # any: this request gets a 500, and the process goes on
            self._log.error(
                "a request failed unexpectedly",
                http_id=http_id,
                path=scope["path"][:MAX_PATH_LENGTH],
                error=type(error).__name__,
                where=_where(error),
            )
            if status == 0:  # otherwise uvicorn ends the connection: the answer must not look whole
                message = f"The server failed on this request; its log has the cause under the request id {http_id}."
                body = error_body(message, "server_error", code="internal_error")
                await json_response(body, 500)(scope, receive, send_with_id)
        finally:
            self._metrics.observe(record)
            if scope["path"] not in QUIET:
                self._write(scope, http_id, status, time.monotonic() - started, record)

    def _write(self, scope: Scope, http_id: str, status: int, spent: float, record: Record) -> None:
        if scope["path"].startswith("/v1/") and status >= 400 and status != 499:
            self._metrics.count_refused(status)
        line: dict[str, Any] = {
            "http_id": http_id,
            "method": scope["method"],
            "path": scope["path"][:MAX_PATH_LENGTH],
            "status": status,
        }
        line["duration_s"] = round(spent, 4)
        if record.request_id:
            line |= record.line()
        self._log.info("request", **line)
