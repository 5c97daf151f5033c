"""The items of an answer as they grow: the events of a stream, and at the end the output of a whole answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw

from llmendpoint_server.api.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallBegun
from llmendpoint_server.api.logprobs import Namer, chat_logprobs
from llmendpoint_server.api.openai_responses.input import is_object
from llmendpoint_server.api.pieces import Piece
from llmendpoint_server.api.responses import encode_json

Event = tuple[str, dict[str, Any]]
"""Its name, and its fields beside type and number."""
MESSAGE, REASONING, CALL = "message", "reasoning", "function_call"
PREFIXES = {MESSAGE: "msg", REASONING: "rs", CALL: "fc"}
NONE = b"[]"
TEXT_EVENTS = {MESSAGE: "response.output_text", REASONING: "response.reasoning_text"}


class Output:
    """One item grows at a time. `id`: what the ids of all items hold. `namer`: if log probabilities are shown."""

    def __init__(self, id: str, namer: Namer | None) -> None:
        self._id, self._namer = id, namer
        self.items: list[dict[str, Any]] = []
        self._open = False
        self._texts: list[str] = []
        """of the item that grows"""
        self._logprobs: list[bytes] = []
        """of the message that grows, as JSON: encoded once, though they are shown several times"""
        self._held: list[dict[str, Any]] = []
        """of tokens whose text is not decided yet"""

    @property
    def place(self) -> int:
        """Of the last item."""
        return len(self.items) - 1

    def more(self, piece: Piece) -> str | None:
        """Takes a piece that is no more than text of the message that grows, and returns the text."""
        if (
            not self._open
            or self._namer is not None
            or piece.reason is not None
            or self.items[-1]["type"] != MESSAGE
        ):
            return None
        if piece.deltas is None:
            text = piece.text
        elif len(piece.deltas) == 1 and isinstance(delta := piece.deltas[0], Content):
            text = delta.text
        else:
            return None
        self._texts.append(text)
        return text

    def delta(self, text: str) -> Event:
        """Of the message that grows."""
        return f"{TEXT_EVENTS[MESSAGE]}.delta", self._place() | {
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        }

    def take(self, piece: Piece) -> Iterator[Event]:
        """A piece grows the items; the last one completes them."""
        deltas: Sequence[Delta] | None = piece.deltas
        if deltas is None:
            deltas = [Content(piece.text)] if piece.text else []
        at = 0
        if self._namer is not None:
            scores = [score for score in piece.logprobs if score is not None]
            told = chat_logprobs(scores, self._namer)["content"]
            for score, until in zip(told, piece.decided or (0,) * len(told), strict=True):
                self._held.append(score)
                for delta in deltas[at:until]:
                    yield from self._delta(delta)
                at = until
        for delta in deltas[at:]:
            yield from self._delta(delta)
        if piece.reason is not None:
            yield from self._end(complete=piece.reason != "length")

    def close(self) -> Iterator[Event]:
        """The answer ends before its last piece."""
        yield from self._complete(complete=False)

    def _delta(self, delta: Delta) -> Iterator[Event]:
        match delta:
            case Content(text):
                yield from self._grow(MESSAGE, text)
                return
            case Reasoning(text):
                yield from self._grow(REASONING, text)
            case ToolCallBegun(_, call, name):
                yield from self._begin(CALL, {"call_id": call, "name": name, "arguments": ""})
            case ToolCallArguments(_, text):
                self._texts.append(text)
                yield "response.function_call_arguments.delta", self._place() | {"delta": text}
        self._held = []  # they are of reasoning or of a call

    def _grow(self, kind: str, text: str) -> Iterator[Event]:
        if not self._open or self.items[-1]["type"] != kind:
            yield from self._begin(kind, _EMPTY[kind])
            if kind == MESSAGE:
                self._held = _from_text(self._held, text)
        self._texts.append(text)
        change: dict[str, Any] = self._place() | {"content_index": 0, "delta": text}
        if kind == MESSAGE:
            told, self._held = encode_json(self._held), []
            change["logprobs"] = Raw(told)
            if len(told) > len(NONE):
                self._logprobs.append(told[1:-1])
        yield f"{TEXT_EVENTS[kind]}.delta", change

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": self.place}

    def _begin(self, kind: str, fields: dict[str, Any]) -> Iterator[Event]:
        yield from self._complete(complete=True)
        self._open = True
        index = len(self.items)
        item = {"id": f"{PREFIXES[kind]}_{self._id}_{index}", "type": kind, "status": "in_progress", **fields}
        self.items.append(item)
        shown = item | ({"content": []} if kind != CALL else {})
        yield "response.output_item.added", {"output_index": index, "item": shown}
        if kind != CALL:
            place = self._place() | {"content_index": 0, "part": _part(kind, "", Raw(NONE))}
            yield "response.content_part.added", place

    def _complete(self, *, complete: bool) -> Iterator[Event]:
        """The item that grows, if there is one."""
        if not self._open:
            return
        self._open = False
        item, text, logprobs = self.items[-1], "".join(self._texts), Raw(b"[%b]" % b",".join(self._logprobs))
        self._texts, self._logprobs = [], []
        kind = item["type"]
        if kind == CALL:
            item["arguments"] = text
            complete = is_object(text)  # a whole call is whole, even if the answer was cut at its end
            yield (
                "response.function_call_arguments.done",
                self._place() | {"name": item["name"], "arguments": text},
            )
        else:
            place, part = self._place() | {"content_index": 0}, _part(kind, text, logprobs)
            item["content"] = [part]
            scores = {"logprobs": logprobs} if kind == MESSAGE else {}
            yield f"{TEXT_EVENTS[kind]}.done", place | {"text": text} | scores
            yield "response.content_part.done", place | {"part": part}
        item["status"] = "completed" if complete else "incomplete"
        yield "response.output_item.done", {"output_index": self.place, "item": item}

    def _end(self, *, complete: bool) -> Iterator[Event]:
        in_message = self._open and self.items[-1]["type"] == MESSAGE
        if not self.items or (self._held and in_message):
            yield from self._grow(MESSAGE, "")
        self._held = []
        yield from self._complete(complete=complete)


_EMPTY: dict[str, dict[str, Any]] = {
    MESSAGE: {"role": "assistant"},
    REASONING: {"summary": [], "encrypted_content": None},
}


def _from_text(scores: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Those of the tokens that a message begins with, without the mark that ends the reasoning before it."""
    at = b"".join([bytes(score["bytes"]) for score in scores]).rfind(text.encode())
    while scores and at >= len(scores[0]["bytes"]):
        at -= len(scores[0]["bytes"])
        scores = scores[1:]
    return scores


def _part(kind: str, text: str, logprobs: Raw) -> dict[str, Any]:
    if kind == MESSAGE:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
    return {"type": "reasoning_text", "text": text}
