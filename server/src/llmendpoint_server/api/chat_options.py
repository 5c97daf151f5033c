"""What a chat template gets beside the messages. No template engine here: the simulator has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Messages = Sequence[Mapping[str, Any]]
"""As `messages.for_template` makes them."""


class TooSlow(Exception):
    """The template took longer than it may."""


@dataclass(frozen=True)
class ChatOptions:
    """`variables`: the caller's own. `continue_final`: the answer goes on from the last message's text."""

    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final: bool = False


PLAIN_CHAT = ChatOptions()


def joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    """A message's content as one text."""
    return content if isinstance(content, str) else "".join([part["text"] for part in content])
