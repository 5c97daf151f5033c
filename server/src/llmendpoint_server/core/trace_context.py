"""W3C trace context: what the header `traceparent` says, and which requests are traced."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
LONGEST = 256
"""Characters of a header that is read."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span. `sampled`: the caller records it."""

    trace_id: int
    span_id: int
    sampled: bool


def read_traceparent(header: str) -> Parent | None:
    """None for a header that is none, or is broken: a request is never refused for it."""
    match = _TRACEPARENT.fullmatch(header.strip()) if len(header) <= LONGEST else None
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace, 16) or not int(span, 16):
        return None
    return Parent(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))


def chosen(trace_id: int, ratio: float) -> bool:
    """Whether a trace without a parent is recorded: a share of `ratio` of them, all parts of a trace alike, as OpenTelemetry's
    TraceIdRatioBased chooses."""
    return trace_id & (2**64 - 1) < round(ratio * 2**64)
