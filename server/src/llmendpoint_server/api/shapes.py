"""Completions in OpenAI's shape: whole, or as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from llmendpoint_server.api.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallBegun
from llmendpoint_server.api.logprobs import Namer, chat_logprobs, prompt_logprobs, text_logprobs
from llmendpoint_server.api.pieces import Piece, Whole
from llmendpoint_server.api.responses import DONE, Usage, encode_json, error_event
from llmendpoint_server.api.view import PLAIN, View
from llmendpoint_server.errors import RequestError


class AnswerEvents(Protocol):
    """The server-sent events of one streamed body."""

    def piece(self, piece: Piece) -> bytes: ...
    def error(self, error: RequestError) -> bytes:
        """The last event, if the request fails after the stream has begun."""


class AnswerShape(Protocol):
    """How the answers to one body are shown."""

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]: ...
    def events(self, usage: Usage, answers: int) -> AnswerEvents: ...


class Shape:
    """What differs between chat and text completions. `head` is in every answer and chunk. `view`: what is shown beside text."""

    full_object: str
    chunk_object: str

    def __init__(self, request_id: str, created: int, model: str, view: View = PLAIN) -> None:
        self.head = {"id": request_id, "created": created, "model": model}
        self.view = view

    def full_choice(self, answer: Whole) -> dict[str, Any]:
        raise NotImplementedError

    def chunk_choices(self, piece: Piece, first: bool) -> Sequence[dict[str, Any]]:
        """One for each chunk that the piece becomes."""
        raise NotImplementedError

    def logprobs(self, piece: Piece | Whole, namer: Namer) -> dict[str, Any]:
        raise NotImplementedError

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        choices = [self._whole_choice(answer) for answer in answers]
        return {**self.head, "object": self.full_object, "choices": choices, "usage": usage.as_dict()}

    def events(self, usage: Usage, answers: int) -> Events:
        return Events(self, usage, answers)

    def _whole_choice(self, answer: Whole) -> dict[str, Any]:
        choice = {
            "index": answer.index,
            **self.full_choice(answer),
            "logprobs": self._logprobs(answer),
            "finish_reason": answer.reason,
            "stop_reason": answer.stop_reason,
        }
        if self.view.token_ids:
            choice["token_ids"] = answer.tokens[answer.echoed :]
        return choice

    def _logprobs(self, piece: Piece | Whole) -> dict[str, Any] | None:
        namer = self.view.namer
        return self.logprobs(piece, namer) if self.view.logprobs and namer is not None else None

    def chunks(self, piece: Piece, *, first: bool, usage: Usage | None = None) -> bytes:
        """`usage`: so far; given if chunks show it."""
        shown = self.chunk_choices(piece, first)
        last = len(shown) - 1
        return b"".join(
            self._chunk(piece, choice, first and not at, at == last, usage) for at, choice in enumerate(shown)
        )

    def _chunk(
        self, piece: Piece, shown: dict[str, Any], first: bool, last: bool, usage: Usage | None
    ) -> bytes:
        """The last chunk of a piece has what belongs to all of it."""
        reason = piece.reason if last else None
        logprobs = self._logprobs(piece) if last and piece.tokens else None
        choice = {"index": piece.index, **shown, "logprobs": logprobs, "finish_reason": reason}
        if reason is not None:
            choice["stop_reason"] = piece.stop_reason
        body = {**self.head, "object": self.chunk_object, "choices": [choice]}
        if self.view.token_ids:
            choice["token_ids"] = piece.tokens if last and not piece.echo else ()
            if first:
                self.place_of_prompt(body, choice)["prompt_token_ids"] = self.view.prompt_of(piece.index)
        if (
            self.view.include_usage
        ):  # without `continuous_usage` OpenAI sends null in every chunk but the last
            body["usage"] = None if usage is None else usage.as_dict()
        return b"data: " + encode_json(body) + b"\n\n"

    def place_of_prompt(self, body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Where vLLM shows what belongs to a prompt."""
        raise NotImplementedError

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

    def logprobs(self, piece: Piece | Whole, namer: Namer) -> dict[str, Any]:
        return chat_logprobs([score for score in piece.logprobs if score is not None], namer)

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        body = super().whole(answers, usage)
        if self.view.token_ids:
            body["prompt_token_ids"] = self.view.prompt_of(0)
        if self.view.prompt_logprobs and self.view.namer is not None:
            body["prompt_logprobs"] = prompt_logprobs(answers[0].prompt_scores, self.view.namer)
        return body

    def place_of_prompt(self, body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return body

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

    def __init__(self, request_id: str, created: int, model: str, view: View = PLAIN) -> None:
        super().__init__(request_id, created, model, view)
        self._offsets: dict[int, int] = {}
        """by answer: the characters of its tokens so far"""

    def full_choice(self, answer: Whole) -> dict[str, Any]:
        choice: dict[str, Any] = {"text": answer.text}
        if self.view.token_ids:
            choice["prompt_token_ids"] = self.view.prompt_of(answer.index)
        if self.view.prompt_logprobs and self.view.namer is not None:
            choice["prompt_logprobs"] = prompt_logprobs(answer.prompt_scores, self.view.namer)
        return choice

    def chunk_choices(self, piece: Piece, first: bool) -> Sequence[dict[str, Any]]:
        return [{"text": piece.text}]

    def logprobs(self, piece: Piece | Whole, namer: Namer) -> dict[str, Any]:
        before = self._offsets.get(piece.index, 0)
        told, after = text_logprobs(piece.tokens, piece.logprobs, namer, before)
        self._offsets[piece.index] = after
        return told

    def place_of_prompt(self, body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return choice


class Events:
    """The server-sent events of one streamed body. The first of each answer has the role. `answers`: how many there are."""

    def __init__(self, shape: Shape, usage: Usage, answers: int = 1) -> None:
        self._shape, self._usage = shape, usage
        self._plain = shape.view.plain
        self._shown_usage = usage if shape.view.continuous_usage else None
        self._left = answers
        self._rest: dict[int, tuple[bytes, bytes]] = {}
        """by answer that has begun: what is before and after the text in its chunks, encoded once. All chunks in the middle
        are the same but for their text, if they show text alone."""

    def piece(self, piece: Piece) -> bytes:
        """The events of a piece; after the last piece of the last answer also all that follows it."""
        rest = self._rest.get(piece.index)
        if rest is not None and piece.reason is None and piece.deltas is None and self._plain:
            return b"%b%b%b" % (rest[0], encode_json(piece.text), rest[1])
        if rest is None:
            self._rest[piece.index] = self._encode_rest(piece.index) if self._plain else (b"", b"")
        chunks = self._shape.chunks(piece, first=rest is None, usage=self._shown_usage)
        if piece.reason is None:
            return chunks
        self._left -= 1
        return chunks if self._left else chunks + self._tail()

    def error(self, error: RequestError) -> bytes:
        return error_event(error)

    def _encode_rest(self, index: int) -> tuple[bytes, bytes]:
        before, _, after = self._shape.chunks(Piece(index, "\0"), first=False).rpartition(encode_json("\0"))
        return before, after

    def _tail(self) -> bytes:
        return (self._shape.usage_chunk(self._usage) if self._shape.view.include_usage else b"") + DONE
