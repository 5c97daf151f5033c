"""Completions in OpenAI's shape: whole, or as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llmendpoint_server.api.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallBegun
from llmendpoint_server.api.pieces import Piece, Whole
from llmendpoint_server.api.responses import DONE, Usage, encode_json


class Shape:
    """What differs between chat and text completions. `head` is in every answer and chunk."""

    full_object: str
    chunk_object: str

    def __init__(self, request_id: str, created: int, model: str) -> None:
        self.head = {"id": request_id, "created": created, "model": model}

    def full_choice(self, answer: Whole) -> dict[str, Any]:
        raise NotImplementedError

    def chunk_choices(self, piece: Piece, first: bool) -> Sequence[dict[str, Any]]:
        """One for each chunk that the piece becomes."""
        raise NotImplementedError

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        choices = [
            {
                "index": answer.index,
                **self.full_choice(answer),
                "logprobs": None,
                "finish_reason": answer.reason,
                "stop_reason": answer.stop_reason,
            }
            for answer in answers
        ]
        return {**self.head, "object": self.full_object, "choices": choices, "usage": usage.as_dict()}

    def chunks(self, piece: Piece, *, first: bool, with_usage: bool) -> bytes:
        shown = self.chunk_choices(piece, first)
        last = len(shown) - 1
        return b"".join(
            self._chunk(piece, choice, with_usage, ends=at == last) for at, choice in enumerate(shown)
        )

    def _chunk(self, piece: Piece, shown: dict[str, Any], with_usage: bool, ends: bool) -> bytes:
        reason = piece.reason if ends else None
        choice = {"index": piece.index, **shown, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            choice["stop_reason"] = piece.stop_reason
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

    def full_choice(self, answer: Whole) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.deltas is not None:
            message |= _message_of(answer.deltas)
        return {"message": message}

    def chunk_choices(self, piece: Piece, first: bool) -> Sequence[dict[str, Any]]:
        if piece.deltas is None:
            shown: list[dict[str, Any]] = [{"content": piece.text} if piece.text or first else {}]
        else:
            shown = [_shown(delta) for delta in piece.deltas] or [{"content": ""} if first else {}]
        if first:
            shown[0] = {"role": "assistant", **shown[0]}
        return [{"delta": delta} for delta in shown]


def _shown(delta: Delta) -> dict[str, Any]:
    """A delta of a chat's stream."""
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case ToolCallBegun(index, call, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call, "type": "function", "function": function}]}
        case ToolCallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _message_of(deltas: Iterable[Delta]) -> dict[str, Any]:
    """The fields of a chat's message that an answer's reader has found."""
    content = reasoning = ""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        match delta:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case ToolCallBegun(index, call, name):
                calls[index] = {"id": call, "type": "function", "function": {"name": name, "arguments": ""}}
            case ToolCallArguments(index, text):
                calls[index]["function"]["arguments"] += text
    fields: dict[str, Any] = {"content": content or (None if calls or reasoning else "")}
    if reasoning:
        fields["reasoning_content"] = reasoning
    if calls:
        fields["tool_calls"] = list(calls.values())
    return fields


class TextShape(Shape):
    full_object = chunk_object = "text_completion"

    def full_choice(self, answer: Whole) -> dict[str, Any]:
        return {"text": answer.text}

    def chunk_choices(self, piece: Piece, first: bool) -> Sequence[dict[str, Any]]:
        return [{"text": piece.text}]


class Events:
    """The server-sent events of one streamed body. The first of each answer has the role. `answers`: how many there are."""

    def __init__(self, shape: Shape, usage: Usage, include_usage: bool, answers: int = 1) -> None:
        self._shape, self._usage, self._include_usage = shape, usage, include_usage
        self._left = answers
        self._rest: dict[int, tuple[bytes, bytes]] = {}
        """by answer that has begun: what is before and after the text in its chunks, encoded once. All chunks in the middle
        are the same but for their text."""

    def piece(self, piece: Piece) -> bytes:
        """The events of a piece; after the last piece of the last answer also all that follows it."""
        rest = self._rest.get(piece.index)
        if rest is not None and piece.reason is None and piece.deltas is None:
            return b"%b%b%b" % (rest[0], encode_json(piece.text), rest[1])
        if rest is None:
            self._rest[piece.index] = self._encode_rest(piece.index)
        chunks = self._shape.chunks(piece, first=rest is None, with_usage=self._include_usage)
        if piece.reason is None:
            return chunks
        self._left -= 1
        return chunks if self._left else chunks + self._tail()

    def _encode_rest(self, index: int) -> tuple[bytes, bytes]:
        chunk = self._shape.chunks(Piece(index, "\0"), first=False, with_usage=self._include_usage)
        before, _, after = chunk.rpartition(encode_json("\0"))
        return before, after

    def _tail(self) -> bytes:
        return (self._shape.usage_chunk(self._usage) if self._include_usage else b"") + DONE
