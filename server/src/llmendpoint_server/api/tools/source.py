"""What all readers share: text that arrives in pieces, read by generators as if it were whole. Pure.

A reader's grammar is written as generators. Each `yield` means: more text is needed. It returns when more has come or
the answer has ended. So a grammar never sees where the pieces were cut, and cannot depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from llmendpoint_server.api.tools.deltas import (
    Content,
    Delta,
    Reasoning,
    ToolCallArguments,
    ToolCallBegun,
)

HEAD_MAX = 4_096
"""Characters of a call before its arguments begin. A longer head is no call."""
VALUE_MAX = 65_536
"""Characters of a value that can only be shown whole."""
SPACE_MAX = 64
"""White space that is held back, because it goes if a call follows."""
DEPTH_MAX = 64
"""Lists and objects in one another, where a reader has to follow them."""
NAME = re.compile(r"[A-Za-z0-9_.:/\-]{1,128}")
"""A function's name as a model may write it."""

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A part of a grammar. It yields where it needs more text."""
NewId = Callable[[], str]


class Broken(Exception):
    """What was read is not what the format says. The text goes back to the content."""


def overlap(text: str, marker: str) -> int:
    """The length of the longest end of `text` with which `marker` begins, below the whole marker."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


class Source:
    """The text that is not read yet, and the deltas that are not given yet."""

    def __init__(self, new_id: NewId) -> None:
        self.text = ""
        """from here on nothing was read for good"""
        self.at = 0
        """what a try has read beyond that; see `commit` and `back`"""
        self.ended = False
        self.deltas: list[Delta] = []
        self.calls = 0
        self._new_id = new_id
        self._space = ""
        self._content_since_call = False

    # Reading

    def more(self) -> Reading[bool]:
        """Wait for more text. False: the answer has ended."""
        before = len(self.text)
        while len(self.text) == before and not self.ended:
            yield
        return len(self.text) > before

    def peek(self, count: int = 1) -> Reading[str]:
        """The next characters, without reading them. Fewer only at the answer's end."""
        while len(self.text) - self.at < count and (yield from self.more()):
            pass
        return self.text[self.at : self.at + count]

    def take(self, pattern: re.Pattern[str], longest: int = HEAD_MAX) -> Reading[str]:
        """Read the longest text that matches, which may be empty. For patterns whose every beginning matches too."""
        while True:
            match = pattern.match(self.text, self.at)
            end = match.end() if match else self.at
            if end - self.at > longest:
                raise Broken
            if end < len(self.text) or not (yield from self.more()):
                found = self.text[self.at : end]
                self.at = end
                return found

    def skip_space(self) -> Reading[None]:
        yield from self.take(SPACES)

    def try_take(self, marker: str) -> Reading[bool]:
        """Read `marker` if it comes next."""
        while True:
            rest = self.text[self.at : self.at + len(marker)]
            if rest == marker:
                self.at += len(marker)
                return True
            if not marker.startswith(rest) or not (yield from self.more()):
                return False

    def expect(self, marker: str) -> Reading[None]:
        """Read `marker`. Raises Broken if something else comes."""
        if not (yield from self.try_take(marker)):
            raise Broken

    def take_until(self, marker: str, longest: int = HEAD_MAX) -> Reading[str]:
        """Read the text up to `marker`, and the marker. Raises Broken if it does not come."""
        while True:
            found = self.text.find(marker, self.at)
            if 0 <= found <= self.at + longest:
                text, self.at = self.text[self.at : found], found + len(marker)
                return text
            if len(self.text) - self.at > longest + len(marker) or not (yield from self.more()):
                raise Broken

    def stream_until(self, markers: Sequence[str], show: Callable[[str], None]) -> Reading[str]:
        """Show the text up to the first of `markers` as it comes, and read the marker. Returns it; '' at the end.

        No marker may hold another one.
        """
        while True:
            self.commit()
            found = [(at, marker) for marker in markers if (at := self.text.find(marker)) >= 0]
            if found:
                self.at, marker = min(found)
            else:
                self.at = len(self.text) - max(overlap(self.text, marker) for marker in markers)
            self._show_read(show)
            if found:
                self.at = len(marker)
                self.commit()
                return marker
            if not (yield from self.more()):
                self.at = len(self.text)
                self._show_read(show)
                return ""

    def stream_rest(self, show: Callable[[str], None]) -> Reading[None]:
        while True:
            self.at = len(self.text)
            self._show_read(show)
            if not (yield from self.more()):
                return

    def stream_while(self, pattern: re.Pattern[str], show: Callable[[str], None]) -> Reading[None]:
        """Show the longest text that matches, as it comes. For patterns whose every beginning matches too."""
        while True:
            self.commit()
            match = pattern.match(self.text)
            self.at = match.end() if match else 0
            self._show_read(show)
            if self.text or not (yield from self.more()):
                return

    def _show_read(self, show: Callable[[str], None]) -> None:
        if self.at:
            show(self.text[: self.at])
            self.commit()

    def commit(self) -> None:
        """What was read will not be given back."""
        if self.at:
            self.text, self.at = self.text[self.at :], 0

    # Showing

    def content(self, text: str) -> None:
        """Show content. White space at its end is held, because it belongs to the format if a call follows."""
        text = self._space + text
        shown = len(text.rstrip())
        shown = max(shown, len(text) - SPACE_MAX)
        self._space = text[shown:]
        if shown:
            self._content_since_call = True
            self.deltas.append(Content(text[:shown]))

    def reasoning(self, text: str) -> None:
        if text:
            self.deltas.append(Reasoning(text))

    def begin_call(self, name: str, call_id: str = "") -> None:
        self._space, self._content_since_call = "", False
        self.deltas.append(ToolCallBegun(self.calls, call_id or self._new_id(), name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """A piece of the arguments of the call that was begun last."""
        if text:
            self.deltas.append(ToolCallArguments(self.calls - 1, text))

    def end(self) -> None:
        """The rest, after the last of the text: white space after a call is the format's."""
        if self._space and (self._content_since_call or not self.calls):
            self.deltas.append(Content(self._space))
        self._space = ""


SPACES = re.compile(r"\s*")


class GrammarReader:
    """An AnswerReader whose grammar is a generator: `read`, written by each format."""

    def __init__(self, new_id: NewId) -> None:
        self.source = Source(new_id)
        self._reading = self._read_all()

    def push(self, text: str) -> list[Delta]:
        if text:
            self.source.text += text
            self._go_on()
        return self._given()

    def finish(self) -> list[Delta]:
        if not self.source.ended:
            self.source.ended = True
            self._go_on()
        return self._given()

    def read(self) -> Reading[None]:
        """The grammar of a whole answer, up to its end."""
        raise NotImplementedError

    def _read_all(self) -> Reading[None]:
        source = self.source
        try:
            yield from self.read()
        except Broken:
            source.at = 0
        yield from source.stream_rest(source.content)
        source.end()

    def _go_on(self) -> None:
        next(self._reading, None)

    def _given(self) -> list[Delta]:
        deltas, self.source.deltas = self.source.deltas, []
        return deltas


class MarkedReader(GrammarReader):
    """Content, and calls that begin with one of `markers`.

    `call` reads what follows a marker, and commits each call that is whole. If it raises Broken, all that is not
    committed becomes content, with the marker if no call has begun; reading goes on behind the marker.
    """

    markers: Sequence[str]

    def call(self, marker: str) -> Reading[None]:
        raise NotImplementedError

    def read(self) -> Reading[None]:
        source = self.source
        while marker := (yield from source.stream_until(self.markers, source.content)):
            yield from self.attempt(self.call(marker), marker)

    def attempt(self, call: Reading[None], marker: str = "") -> Reading[None]:
        source = self.source
        begun = source.calls
        try:
            yield from call
        except Broken:
            source.at = 0
            if source.calls == begun:
                source.content(marker)
        source.commit()
