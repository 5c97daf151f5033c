"""The text and the bytes of single tokens, as lists of log probabilities name them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from tokenizers import Tokenizer

from llmendpoint_server.api.detokenize import REPLACEMENT

REMEMBERED = 2**16
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_letter() -> dict[str, int]:
    """By the letter that stands for a byte in a vocabulary of the GPT-2 kind. Printable bytes stand for themselves; the
    others are the letters from U+0100 on, in their order (github.com/openai/gpt-2, encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


class TokenTexts:
    """A token's text inside a text: with the space that begins it. Special tokens have their name."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        decoder = tokenizer.decoder
        kinds = json.dumps(json.loads(decoder.__getstate__())) if decoder is not None else ""
        self._letters = _byte_of_letter() if '"ByteLevel"' in kinds else {}
        before = tokenizer.encode("a", add_special_tokens=False).ids
        self._before = before[-1:]
        self._start = self._decode(self._before)
        self.of: Callable[[int], tuple[str, bytes]] = lru_cache(REMEMBERED)(self._of)

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=False)
        return text

    def _of(self, token: int) -> tuple[str, bytes]:
        """A part of a character has the text that OpenAI gives it: its bytes as escapes."""
        together = self._decode([*self._before, token])
        text = (
            together.removeprefix(self._start) if together.startswith(self._start) else self._decode([token])
        )
        if REPLACEMENT not in text:
            return text, text.encode()
        data = self._bytes(token)
        if data is None or data == text.encode():  # a token that is this character
            return text, text.encode()
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data), data

    def _bytes(self, token: int) -> bytes | None:
        name = self._tokenizer.id_to_token(token)
        if name is None:
            return None
        if found := _BYTE.fullmatch(name):
            return bytes.fromhex(found[1])
        if self._letters and all(letter in self._letters for letter in name):
            return bytes(self._letters[letter] for letter in name)
        return None
