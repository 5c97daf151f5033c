"""Reads again and again until a condition holds. A short absence of the API server does not end that.

It polls instead of watching: one object or two lists at a time, from the API server's cache, and no state to lose when
a connection breaks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from .errors import TimedOut, Unreachable

T = TypeVar("T")

INTERVAL_S = 0.5


def readings(read: Callable[[], T], timeout_s: float | None, waited_for: str) -> Iterator[T]:
    """The result of `read`, at once and then every half second. After `timeout_s` it raises TimedOut, or Unreachable if
    the last attempt failed. A failure of the first attempt is raised at once, because the address may be wrong."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    away: Unreachable | None = None
    yield read()
    while True:
        if deadline is not None and time.monotonic() >= deadline:
            raise away or TimedOut(f"timed out after {timeout_s:g} s, waiting for {waited_for}")
        time.sleep(INTERVAL_S)
        try:
            found = read()
        except Unreachable as error:
            away = error
            continue
        away = None
        yield found
