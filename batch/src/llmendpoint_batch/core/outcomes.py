"""What the gateway's answer to a line means: it is kept, or the line is sent again.

An endpoint that has no room or no replica is waited for, without counting. An attempt that broke an engine counts: a
line that breaks every engine must come to an end.
"""

from dataclasses import dataclass

MOST_ATTEMPTS = 5
"""Attempts that broke. Answers that ask to wait are none."""
LONGEST_WAIT = 300.0
"""Seconds. A longer Retry-After is shortened, so that a wrong one does not stop an endpoint until the window ends."""
FINAL_CODES = frozenset({"request_refused"})
"""The gateway's codes for a request that is not worth another attempt though its status says so: two replicas crashed
with it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `code`: that of an error in OpenAI's shape. `retry_after`: seconds, if the answer has any."""

    status: int
    body: bytes
    request_id: str = ""
    code: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """No whole answer. `sent`: whether an engine may have seen the request."""

    message: str
    sent: bool
    code: str = "connection_failed"
    final: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """The line has its answer. `good`: it belongs into the output file."""

    result: Reply | Broken
    good: bool


@dataclass(frozen=True, slots=True)
class Again:
    """`busy`: the endpoint is to be left alone for a while, for `seconds` if they are known. `counts`: an attempt
    broke."""

    busy: bool
    counts: bool
    seconds: float | None = None


def judge(result: Reply | Broken, broken_before: int) -> Keep | Again:
    """`broken_before`: attempts at this line that broke already."""
    last = broken_before + 1 >= MOST_ATTEMPTS
    if isinstance(result, Broken):
        if result.final or (result.sent and last):
            return Keep(result, good=False)
        return Again(busy=True, counts=result.sent)
    if 200 <= result.status < 300:
        return Keep(result, good=True)
    if result.status in (429, 503) and result.code not in FINAL_CODES:
        return Again(busy=True, counts=False, seconds=_bounded(result.retry_after))
    if result.status >= 500 and result.code not in FINAL_CODES and not last:
        return Again(busy=True, counts=True, seconds=_bounded(result.retry_after))
    return Keep(result, good=False)


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_WAIT)


def read_retry_after(value: str | None) -> float | None:
    """The header's seconds. Its other form, a date, is not used by our gateway; None makes us wait by ourselves."""
    text = (value or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
