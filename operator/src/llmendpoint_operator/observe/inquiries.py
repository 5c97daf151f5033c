"""Questions of endpoints to a hub: one at a time for each endpoint, answered in the background."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from ..core.names import Key

Q = TypeVar("Q")
A = TypeVar("A")

ANSWER_LIMIT_S = 20.0
RETRY_S = 10.0


class Inquiries(ABC, Generic[Q, A]):
    """Keeps each answer until its endpoint asks something else. `endpoint`: the hub's base URL. `wake`:
    called after an answer."""

    def __init__(self, endpoint: str, wake: Callable[[Key], None], retry_s: float = RETRY_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._wake = wake
        self._retry_s = retry_s
        self._asked: dict[Key, tuple[Q, asyncio.Task[None]]] = {}
        self._answers: dict[Key, A] = {}

    def ask(self, key: Key, question: Q | None) -> None:
        """Start to find the answer, unless that is in progress. Wakes the key after each new answer."""
        asked = self._asked.get(key)
        if asked is None or asked[0] != question:
            self.forget(key)
            if question is not None:
                self._asked[key] = (question, asyncio.create_task(self._find(key, question)))

    def of(self, key: Key) -> A | None:
        """The answer; None while there is none."""
        return self._answers.get(key)

    def forget(self, key: Key) -> None:
        """Drop the endpoint's question and answer."""
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked[1].cancel()
        self._answers.pop(key, None)

    @abstractmethod
    async def _find(self, key: Key, question: Q) -> None:
        """Store the answer in `_answers` and wake the key."""
