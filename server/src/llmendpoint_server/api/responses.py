"""Answers in OpenAI's shape: errors, completions, chunks of a stream."""

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

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Shape:
    """What differs between chat and text completions. `head` is in every answer and chunk."""

    full_object: str
    chunk_object: str

    def __init__(self, request_id: str, created: int, model: str) -> None:
        self.head = {"id": request_id, "created": created, "model": model}

    def full_choice(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def chunk_choice(self, text: str, first: bool) -> dict[str, Any]:
        raise NotImplementedError

    def whole(self, text: str, reason: str, usage: Usage) -> dict[str, Any]:
        choice = {"index": 0, **self.full_choice(text), "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": self.full_object, "choices": [choice], "usage": usage.as_dict()}

    def chunk(self, text: str, reason: str | None, *, first: bool, with_usage: bool) -> bytes:
        choice = {"index": 0, **self.chunk_choice(text, first), "logprobs": None, "finish_reason": reason}
        body = {**self.head, "object": self.chunk_object, "choices": [choice]}
        if with_usage:  # OpenAI sends null in every chunk but the last
            body["usage"] = None
        return b"data: " + encode_json(body) + b"\n\n"

    def usage_chunk(self, usage: Usage) -> bytes:
        body = {**self.head, "object": self.chunk_object, "choices": [], "usage": usage.as_dict()}
        return b"data: " + encode_json(body) + b"\n\n"


class ChatShape(Shape):
    full_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def full_choice(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def chunk_choice(self, text: str, first: bool) -> dict[str, Any]:
        if first:
            return {"delta": {"role": "assistant", "content": text}}
        return {"delta": {"content": text} if text else {}}


class TextShape(Shape):
    full_object = chunk_object = "text_completion"

    def full_choice(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def chunk_choice(self, text: str, first: bool) -> dict[str, Any]:
        return {"text": text}


class Events:
    """The server-sent events of one streamed answer. The first has the role."""

    def __init__(self, shape: Shape, include_usage: bool) -> None:
        self._shape, self._include_usage = shape, include_usage
        self._first = True
        # All chunks in the middle are the same but for their text, so the rest is encoded once.
        chunk = shape.chunk("\0", None, first=False, with_usage=include_usage)
        self._before, _, self._after = chunk.rpartition(encode_json("\0"))

    def piece(self, text: str) -> bytes:
        if self._first:
            return self._chunk(text, None)
        return b"%b%b%b" % (self._before, encode_json(text), self._after)

    def last(self, text: str, reason: str, usage: Usage) -> bytes:
        """The last piece of the answer, and all that follows it."""
        usage_chunk = self._shape.usage_chunk(usage) if self._include_usage else b""
        return self._chunk(text, reason) + usage_chunk + DONE

    def _chunk(self, text: str, reason: str | None) -> bytes:
        first, self._first = self._first, False
        return self._shape.chunk(text, reason, first=first, with_usage=self._include_usage)
