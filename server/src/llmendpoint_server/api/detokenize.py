"""Turns tokens into text piece by piece: whole characters only, and no stop strings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

REPLACEMENT = "\ufffd"
MAX_HELD_TOKENS = 8
"""Text that is still broken after this many tokens stays broken: a character has at most 4 bytes, a token at least one."""
NO_PLAIN: Mapping[int, str] = MappingProxyType({})


class Detokenizer:
    """The text of a growing list of tokens. `push` returns the text that became certain, `finish` the rest.

    A token may end inside a character; such text is held until the character is whole. Tokens are decoded together with
    the one before them, or with all those before them back to where a character ended. A decoder may treat the first
    token of a text differently (its space), and with byte fallback a missing byte makes a whole run of bytes unreadable.

    `plain`: the text that a token adds to any whole text, for those whose text depends on no other token. While nothing
    is held, these are not decoded.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], plain: Mapping[int, str] = NO_PLAIN) -> None:
        self._decode = decode
        self._plain = plain
        self._last_plain: int | None = None
        """the last token, if it is the window and was not decoded"""
        self._whole = False
        """the window began as text, and as whole characters"""
        self._window: list[int] = []
        self._shown = 0
        """characters of the window's text that were returned"""
        self._recent = 0
        """tokens at the window's end since all text was last whole"""
        self._fruitless = 0
        """tokens since text last became certain"""

    def push(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return ""
        if self._whole and not self._recent:  # nothing is held
            try:
                piece = "".join([self._plain[token] for token in tokens])
            except KeyError:
                self._restore_window()
            else:
                self._last_plain = tokens[-1]
                return piece
        self._window.extend(tokens)
        self._recent += len(tokens)
        text = self._decode(self._window)
        piece = text[self._shown :]
        if piece and REPLACEMENT not in piece:  # nearly always
            self._forget_before(self._recent)
            return piece
        if len(tokens) == 1:
            return self._push_unclear(text)
        del self._window[-len(tokens) :]
        self._recent -= len(tokens)
        return "".join(self.push((token,)) for token in tokens)

    def _push_unclear(self, text: str) -> str:
        """The last token brought no text, or text that is not whole."""
        self._fruitless += 1
        hopeless = self._fruitless > MAX_HELD_TOKENS
        end = len(text) if hopeless else max(self._shown, len(text.rstrip(REPLACEMENT)))
        piece = text[self._shown : end]
        if piece:
            self._shown, self._fruitless = end, 0
            if end == len(text):
                self._forget_before(self._recent)
            else:
                self._keep_last(len(text) - end)
        elif hopeless:  # tokens without text, such as special ones
            del self._window[-self._fruitless :]
            self._recent -= self._fruitless
            self._fruitless = 0
        return piece

    def _restore_window(self) -> None:
        if self._last_plain is not None:
            self._window, self._last_plain = [self._last_plain], None
            self._shown = len(self._decode(self._window))

    def _forget_before(self, recent: int) -> None:
        """Keep the last token if it is whole by itself; otherwise so many recent ones."""
        last = self._window[-1:]
        text = self._decode(last)
        if not text or REPLACEMENT in text:
            last = self._window[-recent:]
            text = self._decode(last)
        self._window, self._shown = last, len(text)
        self._whole = bool(text) and REPLACEMENT not in text
        self._recent = self._fruitless = 0

    def _keep_last(self, held: int) -> None:
        """Text became certain, and so many characters are held: then all of these come from the last token, and the ones before
        it are not needed. Otherwise the window would grow with an answer whose every token ends inside a character."""
        last = self._window[-1:]
        text = self._decode(last)
        if text.endswith(held * REPLACEMENT):
            self._window, self._shown = last, len(text) - held
            self._recent, self._whole = 1, False

    def finish(self) -> str:
        """The rest of the text at the end of the answer. The bytes of a cut character are dropped."""
        self._restore_window()
        text = self._decode(self._window) if self._window else ""
        return text[self._shown :].rstrip(REPLACEMENT)


class StopStrings:
    """Holds back text that may begin a stop string. `push` returns the text that may be shown. `include`: the stop string is,
    too."""

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._include = include
        self._held = ""
        self.any = bool(self._stops)
        self.found: str | None = None
        """the stop string that ended the text"""

    def push(self, piece: str) -> str:
        """The text before the earliest stop string. Without one: all but a possible beginning of one."""
        if not self._stops or self.found is not None:
            return piece if self.found is None else ""
        text = self._held + piece
        places = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if places:
            at, self.found = min(places)
            self._held = ""
            return text[: at + len(self.found) if self._include else at]
        keep = max(self._overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """The length of the longest end of `text` with which `stop` begins."""
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if stop.startswith(text[-length:]):
                return length
        return 0


class TextStream:
    """Tokens in, text to show out. After `stopped` is true, no more text comes. `include_stop`: the stop string is shown.
    `min_tokens`: in the text of so many tokens no stop string is looked for."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stops: Sequence[str],
        plain: Mapping[int, str] = NO_PLAIN,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = Detokenizer(decode, plain)
        self._stops = StopStrings(stops, include_stop)
        self._unsearched = min_tokens

    @property
    def stop(self) -> str | None:
        """The stop string that was found."""
        return self._stops.found

    @property
    def stopped(self) -> bool:
        return self._stops.found is not None

    def push(self, tokens: Sequence[int]) -> tuple[str, int]:
        """Returns the text that became certain, and how many tokens were taken: those after a stop string are not.

        With stop strings the tokens are taken one by one, so that the end of an answer does not depend on how its
        tokens arrive.
        """
        if not self._stops.any:
            return self._detokenizer.push(tokens), len(tokens)
        text, taken = "", 0
        for token in tokens:
            piece = self._detokenizer.push((token,))
            taken += 1
            if self._unsearched:
                self._unsearched -= 1
                text += piece
                continue
            text += self._stops.push(piece)
            if self.stopped:
                break
        return text, taken

    def finish(self) -> str:
        shown = self._stops.push(self._detokenizer.finish())
        return shown if self.stopped else shown + self._stops.finish()
