"""What a simulated engine does: settings, and pure functions that decide what happens to the n-th request."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass

from llmendpoint_server.simulator.tokens import END, decode, encode, last_user_message


@dataclass(frozen=True)
class Behaviour:
    """How the engine behaves. Times in seconds, rates 0..1, counts of requests; None: never."""

    load_time: float = 0.2
    never_ready: bool = False
    load_error: int | None = None
    """exit code with which loading fails, after `load_time`"""
    ttft: float = 0.05
    itl: float = 0.01
    jitter: float = 0.0
    """each time is multiplied by a number drawn evenly from (1 - jitter) to (1 + jitter)"""
    error_rate: float = 0.0
    hang_rate: float = 0.0
    hang_after: int | None = None
    crash_after: int | None = None
    freeze_after: int | None = None
    answers: tuple[tuple[str, str], ...] = ()
    """(text in the last user message, answer): the first match is the answer; an empty text matches every message"""
    output_tokens: int | None = None
    """tokens of every answer; None: its own length"""
    seed: int = 0
    foreign: bool = False
    adapter_load_time: float = 0.0
    adapter_error: str | None = None
    """a text; adapters whose source has it are refused"""


class Fate(enum.Enum):
    """What happens to one request."""

    ANSWER = "answer"
    ERROR = "error"
    HANG = "hang"
    FREEZE = "freeze"
    """Hangs, together with the whole engine."""
    CRASH = "crash"


def fate(behaviour: Behaviour, number: int) -> Fate:
    """What happens to request `number` (from 1). It is the same at every start with the same seed."""
    if behaviour.crash_after is not None and number > behaviour.crash_after:
        return Fate.CRASH
    if behaviour.freeze_after is not None and number > behaviour.freeze_after:
        return Fate.FREEZE
    if behaviour.hang_after is not None and number > behaviour.hang_after:
        return Fate.HANG
    drawn = _draws(behaviour, number).random()
    if drawn < behaviour.error_rate:
        return Fate.ERROR
    if drawn < behaviour.error_rate + behaviour.hang_rate:
        return Fate.HANG
    return Fate.ANSWER


def waits(behaviour: Behaviour, number: int, count: int) -> list[float]:
    """Seconds before each of the `count` tokens of request `number`."""
    draws = _draws(behaviour, -number)
    low, high = 1 - behaviour.jitter, 1 + behaviour.jitter
    mean = (behaviour.ttft if position == 0 else behaviour.itl for position in range(count))
    return [seconds * draws.uniform(low, high) for seconds in mean]


def _draws(behaviour: Behaviour, stream: int) -> random.Random:
    return random.Random(f"{behaviour.seed}/{stream}")


def answer_text(behaviour: Behaviour, prompt: str) -> str:
    """The answer to a rendered prompt: that of an override, else an echo of the last user message."""
    message = last_user_message(prompt)
    for part, text in behaviour.answers:
        if part in message:
            return text
    return f"You said: {message}"


def answer_tokens(
    behaviour: Behaviour, prompt: Sequence[int], max_tokens: int, ignore_eos: bool
) -> tuple[tuple[int, ...], bool]:
    """At most `max_tokens` tokens, and whether the answer ends by itself (its last token is then END).

    With `output_tokens`, or if the caller ignores the end, the text is repeated up to the wanted length.
    """
    text = encode(answer_text(behaviour, decode(prompt)) or " ")
    length = len(text) if behaviour.output_tokens is None else behaviour.output_tokens
    if ignore_eos or length >= max_tokens:
        length = max_tokens
        return _cycle(text, length) if ignore_eos or behaviour.output_tokens else text[:length], False
    return (*_cycle(text, length), END), True


def _cycle(text: tuple[int, ...], length: int) -> tuple[int, ...]:
    repeats = -(-length // len(text))
    return (text * repeats)[:length]
