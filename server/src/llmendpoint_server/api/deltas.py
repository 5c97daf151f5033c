"""What an answer consists of: text to show, reasoning, calls of tools. An answer's reader finds these in the model's text,
and each kind of answer (chat, messages, responses) shows them in its own shape."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True, gc=False):
    text: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    text: str


class ToolCallBegun(msgspec.Struct, frozen=True, gc=False):
    """`index`: of the call in this answer, from 0."""

    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True, gc=False):
    """More of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Delta = Content | Reasoning | ToolCallBegun | ToolCallArguments


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same in as few as can be."""
    found: list[Delta] = []
    for _, group in groupby(deltas, _kind):
        same = list(group)
        texts = [delta.text for delta in same if not isinstance(delta, ToolCallBegun)]
        found += [msgspec.structs.replace(same[0], text="".join(texts))] if texts else same
    return found


def _kind(delta: Delta) -> tuple[type[Delta], int]:
    return type(delta), delta.index if isinstance(delta, ToolCallArguments) else 0


class AnswerReader(Protocol):
    """Reads one answer. Plain text has none: all of it is content."""

    def push(self, text: str) -> list[Delta]:
        """What became certain with this text."""

    def finish(self) -> list[Delta]:
        """The rest, at the end of the answer."""
