"""Answers in OpenAI's shape: errors, and what all routes answer with. `shapes` has the completions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from llmendpoint_server.errors import EngineEnded, RequestError, Unavailable

RETRIABLE = "x-llmendpoint-retriable"
"""Tells the gateway that another replica may take this request."""
CRASHED = "x-llmendpoint-crashed"
"""Tells the gateway that this process ends, as a broken connection would. A stream that has begun does break."""
DONE = b"data: [DONE]\n\n"

encode_json = msgspec.json.Encoder().encode


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode_json(content), status, headers, media_type="application/json")


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(error: RequestError) -> Response:
    """The only place where an error becomes a status and headers."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, Unavailable):
        headers[RETRIABLE] = "1"
        headers.setdefault("retry-after", "1")
    if isinstance(error, EngineEnded):
        headers[CRASHED] = "1"
    return json_response(
        error_body(error.message, error.type, error.param, error.code), error.status, headers
    )


def error_event(error: RequestError) -> bytes:
    """The last event of a begun stream whose request fails: OpenAI's SDKs raise APIError on it."""
    return b"data: " + encode_json(error_body(error.message, error.type, error.param, error.code)) + b"\n\n"


@dataclass
class Usage:
    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """of the completion's: those before its first text or call, if they are shown as reasoning"""

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
