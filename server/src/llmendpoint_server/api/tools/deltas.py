"""What an answer is made of, piece by piece. The same for every format and every route that shows answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegun:
    """`index` counts the calls of one answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of the arguments' JSON text. All pieces of a call joined are its arguments."""

    index: int
    text: str


Delta = Content | Reasoning | ToolCallBegun | ToolCallArguments


class AnswerReader(Protocol):
    """Reads one answer. How its text is cut into pieces changes nothing but the cuts of the deltas."""

    def push(self, text: str) -> list[Delta]:
        """What became certain."""

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""


class PlainReader:
    """An answer that is all content."""

    def push(self, text: str) -> list[Delta]:
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        return []


def merge(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with neighbours of one kind joined. Empty content and reasoning go."""
    joined: list[Delta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        match delta, last:
            case (Content(text), Content(before)):
                joined[-1] = Content(before + text)
            case (Reasoning(text), Reasoning(before)):
                joined[-1] = Reasoning(before + text)
            case (ToolCallArguments(index, text), ToolCallArguments(same, before)) if index == same:
                joined[-1] = ToolCallArguments(index, before + text)
            case (Content("") | Reasoning(""), _):
                pass
            case _:
                joined.append(delta)
    return joined


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]


def collect(deltas: Iterable[Delta]) -> Answer:
    content: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, tuple[ToolCallBegun, list[str]]] = {}
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCallBegun(index):
                calls[index] = (delta, [])
            case ToolCallArguments(index, text):
                calls[index][1].append(text)
    made = tuple(Call(begun.id, begun.name, "".join(parts)) for begun, parts in calls.values())
    return Answer("".join(content), "".join(reasoning), made)
