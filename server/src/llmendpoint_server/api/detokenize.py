"""Tokens to text, piece by piece: whole characters only, stop strings never shown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
MAX_HELD_TOKENS = 8
"""A character has at most 4 bytes, a token at least one: what is still broken after this many tokens stays broken."""
MAX_WINDOW, CONTEXT = 48, 16
"""Tokens decoded again at each step, and how many of them stay when the window is cut. The context is more than the
longest broken end, and some decoders treat the first token of a text differently (its space)."""


class Detokenizer:
    """Text of a growing list of tokens. `push` returns what became certain, `finish` the rest.

    A token may end inside a character; such text is held until the character is whole. The window that is decoded
    again at each step is short, so that a long answer costs the same per token as a short one.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._shown = 0
        """characters of the window's text that were returned"""
        self._fruitless = 0
        """tokens since text last became certain"""

    def push(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return ""
        self._window += tokens
        text = self._decode(self._window)
        end = max(self._shown, len(text.rstrip(REPLACEMENT)))
        if end == self._shown:
            self._fruitless += len(tokens)
            if self._fruitless > MAX_HELD_TOKENS:
                end = len(text)
        piece, self._shown = text[self._shown : end], end
        if piece:
            self._fruitless = 0
        if len(self._window) > MAX_WINDOW:
            self._cut(held=len(text) - end)
        return piece

    def _cut(self, held: int) -> None:
        """Keep the last tokens only. Their text ends as the whole window's does, with `held` characters not shown."""
        self._window = self._window[-CONTEXT:]
        self._shown = max(0, len(self._decode(self._window)) - held)

    def finish(self) -> str:
        """What is left at the end of the answer; the bytes of a character that was cut are dropped."""
        text = self._decode(self._window) if self._window else ""
        return text[self._shown :].rstrip(REPLACEMENT)


class StopStrings:
    """Holds back what may be the beginning of a stop string; `push` returns the text that may be shown."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """The text before the earliest stop string, or all but a possible beginning of one."""
        if not self._stops or self.found:
            return "" if self.found else piece
        text = self._held + piece
        places = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        keep = max(self._overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that `stop` begins with."""
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if stop.startswith(text[-length:]):
                return length
        return 0


class TextStream:
    """Tokens in, showable text out. After `stopped` turns true, nothing more comes."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(decode)
        self._stops = StopStrings(stops)

    @property
    def stopped(self) -> bool:
        return self._stops.found

    def push(self, tokens: Sequence[int]) -> str:
        return self._stops.push(self._detokenizer.push(tokens))

    def finish(self) -> str:
        shown = self._stops.push(self._detokenizer.finish())
        return shown if self._stops.found else shown + self._stops.finish()
