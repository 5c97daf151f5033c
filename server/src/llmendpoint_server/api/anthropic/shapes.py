"""Answers in Anthropic's shape: whole, as the events of a stream, and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from llmendpoint_server.api.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallBegun
from llmendpoint_server.api.pieces import Piece, Whole
from llmendpoint_server.api.responses import Usage, encode_json, error_response
from llmendpoint_server.api.view import PLAIN, View
from llmendpoint_server.errors import RequestError

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
ERRORS = {
    400: "invalid_request_error", 404: "not_found_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error",
}  # fmt: skip
"""By status; another one is an `api_error`."""
_NAMED = {"name": "name", "parameters": "input_schema", "description": "description"}
_OF_A_FUNCTION = re.compile(rf"(tools\[\d+\]\.)function\.({'|'.join(_NAMED)})")
"""A place in a chat's tools, and in those of Anthropic's API."""
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def refusal(error: RequestError) -> Response:
    """With the status and the headers that OpenAI's shape has."""
    response = error_response(error)
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(encode_json(error_of(error)), response.status_code, headers)


def error_of(error: RequestError) -> dict[str, Any]:
    message = _OF_A_FUNCTION.sub(lambda found: found[1] + _NAMED[found[2]], error.message)
    message = message.replace("response_format.json_schema.schema", "output_config.format.schema")
    return {"type": "error", "error": {"type": ERRORS.get(error.status, "api_error"), "message": message}}


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_json(data))


def usage_of(usage: Usage) -> dict[str, Any]:
    """Anthropic counts what was found in a cache beside the input."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def reason_of(reason: str, stop: str | int | None) -> tuple[str, str | None]:
    """`stop_reason` and `stop_sequence`."""
    if reason == "stop" and isinstance(stop, str):
        return "stop_sequence", stop
    return REASONS.get(reason, "end_turn"), None


class MessageShape:
    """`head`: id and model of the message."""

    def __init__(self, request_id: str, created: int, model: str, view: View = PLAIN) -> None:
        """`created` and `view` are of OpenAI's shapes."""
        self._head = {"id": request_id, "type": "message", "role": "assistant", "model": model}

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        [answer] = answers
        reason, stop = reason_of(answer.reason, answer.stop_reason)
        return {
            **self._head,
            "content": blocks_of(answer),
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage_of(usage),
        }

    def events(self, usage: Usage, answers: int) -> MessageEvents:
        return MessageEvents(self, usage)

    def begun(self, usage: Usage) -> dict[str, Any]:
        return {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(usage),
        }


def blocks_of(answer: Whole) -> list[dict[str, Any]]:
    deltas = answer.deltas
    if deltas is None:
        return [{"type": "text", "text": answer.text}] if answer.text else []
    blocks: list[dict[str, Any]] = []
    arguments: dict[int, str] = {}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        match delta:
            case ToolCallArguments(index, text):
                arguments[index] += text
                continue
            case ToolCallBegun(index):
                arguments[index] = ""
        last = blocks[-1] if blocks else None
        if last is None or last["type"] != _kind(delta) or isinstance(delta, ToolCallBegun):
            blocks.append(_empty(delta))
        if isinstance(delta, ToolCallBegun):
            calls[delta.index] = blocks[-1]
        elif isinstance(delta, Content):
            blocks[-1]["text"] += delta.text
        elif isinstance(delta, Reasoning):
            blocks[-1]["thinking"] += delta.text
    for index, call in calls.items():
        call["input"] = _input(arguments[index])
    return blocks


def _input(arguments: str) -> dict[str, Any]:
    """Empty if an answer was cut within them: Anthropic's shape has no place for a part of an object."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _kind(delta: Delta) -> str:
    match delta:
        case Content():
            return "text"
        case Reasoning():
            return "thinking"
        case _:
            return "tool_use"


def _empty(delta: Delta) -> dict[str, Any]:
    """The block that begins with a delta."""
    match delta:
        case ToolCallBegun(_, call, name):
            return {"type": "tool_use", "id": call, "name": name, "input": {}}
        case Reasoning():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}


class MessageEvents:
    """The server-sent events of one streamed message: each block begins, grows and stops, one after the other."""

    def __init__(self, shape: MessageShape, usage: Usage) -> None:
        self._shape, self._usage = shape, usage
        self._begun = False
        self._blocks = 0
        self._open = ""
        """the kind of the block that grows; empty: none does"""

    def error(self, error: RequestError) -> bytes:
        return _event("error", error_of(error))

    def piece(self, piece: Piece) -> bytes:
        parts: list[bytes] = []
        if not self._begun:
            self._begun = True
            start = {"type": "message_start", "message": self._shape.begun(self._usage)}
            parts += [_event("message_start", start), PING]
        deltas = piece.deltas
        if deltas is None:
            deltas = [Content(piece.text)] if piece.text else []
        for delta in deltas:
            parts += self._delta(delta)
        if piece.reason is not None:
            parts += self._end(piece)
        return b"".join(parts)

    def _delta(self, delta: Delta) -> list[bytes]:
        parts: list[bytes] = []
        kind = _kind(delta)
        if self._open != kind or isinstance(delta, ToolCallBegun):
            parts += self._stop()
            self._open = kind
            block = {"type": "content_block_start", "index": self._blocks, "content_block": _empty(delta)}
            parts.append(_event("content_block_start", block))
        match delta:
            case Content(text):
                grown = {"type": "text_delta", "text": text}
            case Reasoning(text):
                grown = {"type": "thinking_delta", "thinking": text}
            case ToolCallArguments(_, text):
                grown = {"type": "input_json_delta", "partial_json": text}
            case ToolCallBegun():
                return parts
        change = {"type": "content_block_delta", "index": self._blocks, "delta": grown}
        return [*parts, _event("content_block_delta", change)]

    def _stop(self) -> list[bytes]:
        if not self._open:
            return []
        self._open = ""
        self._blocks += 1
        return [_event("content_block_stop", {"type": "content_block_stop", "index": self._blocks - 1})]

    def _end(self, piece: Piece) -> list[bytes]:
        reason, stop = reason_of(piece.reason or "stop", piece.stop_reason)
        last = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop},
            "usage": usage_of(self._usage),
        }
        return [
            *self._stop(), _event("message_delta", last), _event("message_stop", {"type": "message_stop"}),
        ]  # fmt: skip
