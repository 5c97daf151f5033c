"""A tokenizer without a vocabulary: up to four bytes of UTF-8 are one token, about as in a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from llmendpoint_server.core.pooling.request import Input

BYTES = 4
END = 0
"""The end of an answer; it has no text."""
VOCABULARY = 2 ** (8 * BYTES + 1)
MESSAGE_END = "\x1e"
"""Separates the messages of a rendered chat: a control character that no chat holds."""
USER = "user: "


def encode(text: str) -> tuple[int, ...]:
    """A token is a 1 followed by its bytes, so that leading zeros stay."""
    data = text.encode(errors="replace")
    return tuple(
        int.from_bytes(b"\x01" + data[start : start + BYTES]) for start in range(0, len(data), BYTES)
    )


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens. Incomplete characters become U+FFFD; ids that encode() never makes are left out."""
    parts = (token.to_bytes(BYTES + 1).lstrip(b"\x00") for token in tokens)
    return b"".join(part[1:] for part in parts if part[:1] == b"\x01").decode(errors="replace")


def render_chat(messages: Sequence[Mapping[str, Any]]) -> str:
    return MESSAGE_END.join(f"{message['role']}: {message['content']}" for message in messages)


def last_user_message(prompt: str) -> str:
    """The user's last message in a rendered chat; a prompt that is no chat is returned unchanged."""
    said = [part.removeprefix(USER) for part in prompt.split(MESSAGE_END) if part.startswith(USER)]
    return said[-1] if said else prompt


class ByteTokenizer:
    """The functions above as the API's Tokenizer."""

    plain: Mapping[int, str] = MappingProxyType({})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        return encode(text)

    def encode_input(
        self, text: str, second: str | None = None, *, most: int | None = None, special: bool = True
    ) -> Input:
        return Input(encode(text + (second or ""))[:most])

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return decode(tokens)

    def token(self, token: int) -> tuple[str, bytes]:
        data = token.to_bytes(BYTES + 1).lstrip(b"\x00")[1:]
        return data.decode(errors="replace"), data

    def full_text(self, tokens: Sequence[int]) -> str:
        return decode(tokens)

    def names(self, tokens: Sequence[int]) -> list[str]:
        return [decode([token]) for token in tokens]

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        return render_chat(messages)
