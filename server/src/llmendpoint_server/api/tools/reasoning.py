"""Splits an answer that begins with reasoning from what follows it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmendpoint_server.api.tools.deltas import AnswerReader, Delta, Reasoning
from llmendpoint_server.api.tools.source import GrammarReader, Reading

LINES = re.compile(r"[\r\n]*")
LINES_MAX = 64


@dataclass(frozen=True)
class Marks:
    """Around the reasoning. `openings`: any of these."""

    openings: tuple[str, ...]
    closings: tuple[str, ...]


THINK = Marks(("<think>",), ("</think>",))
MISTRAL_THINK = Marks(("[THINK]",), ("[/THINK]",))
GEMMA_THINK = Marks(("<|channel>thought",), ("<channel|>",))
KIMI_THINK = Marks(("◁think▷",), ("◁/think▷",))
GRANITE_THINK = Marks(
    ("Here is my thought process:", "Here's my thought process:"),
    ("Here is my response:", "Here's my response:"),
)


class _Splitter(GrammarReader):
    """Only an answer's start can be reasoning. Line breaks next to the marks belong to them."""

    def __init__(self, marks: Marks, *, inside: bool) -> None:
        super().__init__(str)
        self._marks, self._inside = marks, inside
        self._held = ""
        self.after: list[str] = []

    def read(self) -> Reading[None]:
        source = self.source
        yield from source.skip_space()
        opened = yield from self._take_opening()
        if not opened and not self._inside:
            source.at = 0
            yield from source.stream_rest(self.after.append)
            return
        if not opened:
            source.at = 0
        yield from source.take(LINES)
        source.commit()
        if (yield from source.stream_until(self._marks.closings, self._show)):
            yield from source.take(LINES)
            source.commit()
        else:
            source.reasoning(self._held)
        yield from source.stream_rest(self.after.append)

    def _take_opening(self) -> Reading[bool]:
        for opening in self._marks.openings:
            if (yield from self.source.try_take(opening)):
                return True
        return False

    def _show(self, text: str) -> None:
        text = self._held + text
        shown = max(len(text.rstrip("\r\n")), len(text) - LINES_MAX)
        self._held = text[shown:]
        self.source.reasoning(text[:shown])


class ReasoningReader:
    """`inside`: the prompt ended with the opening mark. `rest` reads what follows the reasoning."""

    def __init__(self, marks: Marks, rest: AnswerReader, *, inside: bool) -> None:
        self._splitter = _Splitter(marks, inside=inside)
        self._rest = rest

    def push(self, text: str) -> list[Delta]:
        return self._splitter.push(text) + self._rest.push(self._after())

    def finish(self) -> list[Delta]:
        return self._splitter.finish() + self._rest.push(self._after()) + self._rest.finish()

    def _after(self) -> str:
        text = "".join(self._splitter.after)
        self._splitter.after.clear()
        return text


def without_reasoning(deltas: list[Delta]) -> list[Delta]:
    """For a caller that does not want it."""
    return [delta for delta in deltas if not isinstance(delta, Reasoning)]
