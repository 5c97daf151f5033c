"""From a text of any length to its tokens, in bounded time and memory."""

from __future__ import annotations

import threading

from llmendpoint_server.api.interfaces import Tokenizer
from llmendpoint_server.api.off_loop import Cancelled
from llmendpoint_server.errors import PromptTooLong

SLICE_CHARACTERS = 2**16
USUAL_CHARACTERS = 4
"""Characters of a usual token. A text with more of them for each token that fits may be far too long."""


def encode_within(
    tokenizer: Tokenizer,
    text: str,
    most_tokens: int,
    *,
    special: bool,
    field: str,
    cancelled: threading.Event,
) -> tuple[int, ...]:
    """Token ids of `text`. Raises PromptTooLong; for a very long text, without tokenizing all of it.

    A token may stand for any number of characters (runs of spaces, what a normalizer drops), so the number of
    characters does not show whether a text fits. A long text is tokenized in slices first: the tokens of a slice are
    the text's own, except a few at its two cuts. If the slices so far have twice as many tokens as fit, and two more
    for each slice, the text cannot fit. A text that passes has few tokens, and is tokenized once more as a whole: a
    tokenizer takes some 150 bytes for each. Raises Cancelled between two slices.
    """
    if len(text) > max(SLICE_CHARACTERS, USUAL_CHARACTERS * most_tokens):
        counted = 0
        for number, start in enumerate(range(0, len(text), SLICE_CHARACTERS), 1):
            if cancelled.is_set():
                raise Cancelled
            part = text[start : start + SLICE_CHARACTERS]
            counted += len(tokenizer.encode(part, add_special_tokens=False))
            if counted > 2 * (most_tokens + number):
                raise PromptTooLong(counted // 2, most_tokens, field, at_least=True)
    return tokenizer.encode(text, add_special_tokens=special)
