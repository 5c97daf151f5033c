"""Answers in OpenAI's shape: errors, and what all routes answer with. `shapes` has the completions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
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

LINE_ENDS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}
"""Characters that end a line for Python's `splitlines` (so for httpx's and requests' `iter_lines`), and do not end one of an event stream."""
_LINE_END = re.compile(b"|".join(LINE_ENDS))
_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """JSON of one line, whatever a client takes for the end of a line."""
    data = _encode(value)
    if b"\xe2\x80" in data or b"\xc2\x85" in data:
        data = _LINE_END.sub(lambda found: LINE_ENDS[found[0]], data)
    return data


SLICE, DEEPEST = 128, 4
"""Items of a list that are encoded in one go, and how deep lists are looked for: those of log probabilities are there."""


def pieces_of_json(content: Any, depth: int = 0) -> Iterator[bytes]:
    """What `encode_json` makes, piece by piece, for a thread: encoding holds Python's lock, so that all else would wait for one
    large call."""
    if isinstance(content, dict) and depth < DEEPEST:
        yield b"{"
        for at, (name, value) in enumerate(content.items()):
            yield b"," * bool(at) + encode_json(name) + b":"
            yield from pieces_of_json(value, depth + 1)
        yield b"}"
    elif isinstance(content, list) and len(content) > SLICE:
        yield b"["
        for at in range(0, len(content), SLICE):
            yield b"," * bool(at) + encode_json(content[at : at + SLICE])[1:-1]
        yield b"]"
    elif isinstance(content, list) and depth < DEEPEST:
        yield b"["
        for at, value in enumerate(content):
            yield b"," * bool(at)
            yield from pieces_of_json(value, depth + 1)
        yield b"]"
    else:
        yield encode_json(content)


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
