"""An answer's text as it becomes certain, and what its reader finds in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llmendpoint_server.api.deltas import AnswerReader, Delta, Reasoning
from llmendpoint_server.api.detokenize import TextStream


class ReadText:
    """`reader`: None: all of the text is content. `by_token`: it is told which token decided what was found.

    Until the reasoning is over, and with `by_token`, tokens are read one by one: what is counted and told does not depend
    on how they arrive."""

    def __init__(self, text: TextStream, reader: AnswerReader | None, *, by_token: bool = False) -> None:
        self._text, self._reader, self._by_token = text, reader, by_token
        self._found: list[Delta] = []
        self._decided: list[int] = []
        self._thinking = reader is not None
        self._read = 0
        """tokens while it was thinking"""
        self.thoughts = 0
        """tokens to the end of the reasoning"""

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._text.stop

    @property
    def stopped(self) -> bool:
        return self._text.stopped

    @property
    def undecided(self) -> bool:
        """There is text, perhaps, and nothing was found in it yet."""
        return self._reader is not None and not self._found

    def push(self, tokens: Sequence[int], ending: int = 0) -> tuple[str, int]:
        """Returns the text that became certain, and how many tokens were taken: those after a stop string are not. `ending`:
        tokens at the end that have no text, and count."""
        if self._reader is None and not ending:  # nearly always
            return self._text.push(tokens)
        read = tokens[:-ending] if ending else tokens
        text, taken = self._each(read) if self._thinking or self._by_token else self._all(read)
        if ending and not self._text.stopped:
            taken += ending
            if self._by_token:
                self._decided += ending * [len(self._found)]
        return text, taken

    def _all(self, tokens: Sequence[int]) -> tuple[str, int]:
        text, taken = self._text.push(tokens)
        self._feed(text)
        return text, taken

    def _each(self, tokens: Sequence[int]) -> tuple[str, int]:
        texts: list[str] = []
        for token in tokens:
            self._read += self._thinking
            text, _ = self._all((token,))
            texts.append(text)
            if self._by_token:
                self._decided.append(len(self._found))
            if self._text.stopped:
                break
        return "".join(texts), len(texts)

    def _feed(self, text: str) -> None:
        if self._reader is not None and text:
            self._add(self._reader.push(text))

    def _add(self, found: list[Delta]) -> None:
        self._found += found
        if self._thinking and found:
            reasoning = [isinstance(delta, Reasoning) for delta in found]
            if any(reasoning):
                self.thoughts = self._read
            self._thinking = all(reasoning)

    def finish(self) -> str:
        """The rest of the text, at the end of the answer's tokens."""
        text = self._text.finish()
        self._feed(text)
        return text

    def close(self) -> None:
        """After the last text."""
        if self._reader is not None:
            self._add(self._reader.finish())

    def take(self) -> tuple[list[Delta] | None, tuple[int, ...]]:
        """What was found and not taken, None without a reader; and with `by_token` how much of it there was after each token."""
        found, self._found = self._found, []
        decided, self._decided = tuple(self._decided), []
        return (None, ()) if self._reader is None else (found, decided)
