"""The text of tokens that depends on no other token, found once for each: most tokens of an answer need no decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmendpoint_server.api.detokenize import REPLACEMENT

REMEMBERED = 2**16


def joins_texts(decoder: Mapping[str, Any]) -> bool:
    """Whether a decoder of tokenizer.json makes the text of whole tokens by joining theirs, but for the first token's.
    False for those that it does not know, and for those that treat the last token differently or tidy up."""
    steps = list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds in (["ByteLevel"], ["Metaspace"]):
        return True
    if kinds[-1:] == ["Strip"]:
        if steps[-1]["stop"]:
            return False
        kinds.pop()
    return kinds[-1:] == ["Fuse"] and {*kinds[:-1]} <= {"Replace", "ByteFallback"}


class PlainTokens(dict[int, str]):
    """By token: what it adds to a text that is whole. KeyError for a token without text, and for a part of a character.

    Only for a decoder that joins texts. `before`: any token that has a text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: int) -> None:
        self._decode, self._before = decode, before
        self._start = decode([before])
        self._others: set[int] = set()

    def __missing__(self, token: int) -> str:
        if token in self._others:
            raise KeyError(token)
        alone, text = self._decode([token]), self._decode([self._before, token])
        piece = text.removeprefix(self._start)
        plain = bool(self._start and alone and piece) and text != piece and REPLACEMENT not in alone + text
        if len(self) + len(self._others) >= REMEMBERED:
            pass
        elif plain:
            self[token] = piece
        else:
            self._others.add(token)
        if not plain:
            raise KeyError(token)
        return piece
