"""Asks a downloading pod for its progress while an endpoint waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...core.models.jobs import PROGRESS_PORT
from ...core.names import Key
from ...errors import Unanswered
from ..slots import Slots
from ..targets import base_url
from ..wire import Wire

POLL_S = 3.0
ANSWER_LIMIT_S = 2.0
AT_ONCE = 32
OF_A_NAMESPACE = 8
STEP = 10
"""Percent. A download causes at most ten writes of the status."""


class Progress:
    """Polls the downloading pods of the followed endpoints."""

    def __init__(self, wire: Wire, wake: Callable[[Key], None]) -> None:
        self._wire = wire
        self._wake = wake
        self._slots = Slots(AT_ONCE, OF_A_NAMESPACE, spare=OF_A_NAMESPACE)
        self._followed: dict[Key, tuple[str, asyncio.Task[None]]] = {}
        self._steps: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        """Percent, in multiples of STEP."""
        return self._steps.get(key, 0)

    def follow(self, key: Key, address: str | None) -> None:
        """Start, continue, or (without an address) stop polling."""
        followed = self._followed.get(key)
        if followed is not None and followed[0] == address:
            return
        if followed is not None:
            followed[1].cancel()
            del self._followed[key]
        self._steps.pop(key, None)
        if address is not None:
            self._followed[key] = (address, asyncio.create_task(self._ask(key, address), name="progress"))

    async def _ask(self, key: Key, address: str) -> None:
        while True:
            try:
                url = f"{base_url(address, PROGRESS_PORT)}/progress"
                async with self._slots.held(key[0]):
                    found = await self._wire.json("progress", url, ANSWER_LIMIT_S)
                step = percent(found)
            except Unanswered:
                step = None
            if step is not None and step != self._steps.get(key, 0):
                self._steps[key] = step
                self._wake(key)
            await asyncio.sleep(POLL_S)


def percent(found: Any) -> int | None:
    """Percent from `/progress`, in multiples of STEP; below 100 until the Job itself is complete."""
    try:
        done, total = int(found["bytes"]), int(found["total"])
    except (KeyError, TypeError, ValueError):
        return None
    if total <= 0:
        return 0
    return max(0, min(100 * done // total // STEP * STEP, 100 - STEP))
