"""What became certain of the answers of one body, as the shapes show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from llmendpoint_server.api.deltas import Delta, joined
from llmendpoint_server.core.request import TokenLogprobs


class Piece(msgspec.Struct, gc=False):
    """`index`: of the answer among all of the body. `reason`: with the last piece of the answer, OpenAI's word for how it
    ended; `stop_reason`: then, the stop string or the token of the caller's that ended it. `deltas`: what an answer's
    reader found in the text; None without a reader. `tokens` and `logprobs`: those since the last piece, if the caller
    asks for them.

    A Struct that is not frozen, because one is made for each token."""

    index: int
    text: str
    reason: str | None = None
    stop_reason: str | int | None = None
    deltas: list[Delta] | None = None
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    echo: bool = False
    """it is the prompt"""
    decided: tuple[int, ...] = ()
    """by token: how many of the deltas were found with it and those before it; empty without `deltas` or `logprobs`"""


Show = Callable[[Piece], bool]
"""Takes a piece, and returns whether it takes another one now."""


@dataclass
class Whole:
    """All pieces of one answer."""

    index: int
    texts: list[str] = field(default_factory=list)
    reason: str = ""
    stop_reason: str | int | None = None
    deltas: list[Delta] | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    echoed: int = 0
    """tokens at the beginning that are the prompt's"""
    scored: list[Piece] = field(default_factory=list)
    """the pieces, if they have log probabilities: these belong to the text of their piece"""
    prompt_scores: Sequence[TokenLogprobs | None] = ()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def pieces(self) -> Sequence[Piece]:
        """What the same answer has as a stream, in fewer pieces if they show no log probabilities."""
        if self.scored:
            return self.scored
        deltas = None if self.deltas is None else joined(self.deltas)
        return [Piece(self.index, self.text, self.reason, self.stop_reason, deltas)]

    def add(self, piece: Piece) -> None:
        if piece.logprobs or self.scored:
            self.scored.append(piece)
        self.texts.append(piece.text)
        if piece.deltas is not None:
            self.deltas = (self.deltas or []) + piece.deltas
        self.tokens.extend(piece.tokens)
        self.logprobs.extend(piece.logprobs)
        if piece.echo:
            self.echoed = len(piece.tokens)
        if piece.reason is not None:
            self.reason, self.stop_reason = piece.reason, piece.stop_reason
