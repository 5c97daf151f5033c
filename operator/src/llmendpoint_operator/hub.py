"""Asks a model hub which commit a source is now, once for each revision that is about to be made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
import structlog

from .core.identity import HubModel, Identity

log = structlog.get_logger()

Key = tuple[str, str]

PUBLIC_HUB = "https://huggingface.co"
ANSWER_LIMIT_S = 20.0
RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class Question:
    """`revision` is the hash of the one that needs it: another one asks again, though the source is the same."""

    revision: str
    model: HubModel


class Hub:
    """Answers stay until the endpoint asks another question, so that all passes over a revision see one commit."""

    def __init__(self, endpoint: str, wake: Callable[[Key], None], retry_s: float = RETRY_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._wake = wake
        self._retry_s = retry_s
        self._asked: dict[Key, tuple[Question, asyncio.Task[None]]] = {}
        self._answers: dict[Key, Identity] = {}

    def look(self, key: Key, question: Question | None) -> Identity | None:
        """What is known; None while nothing is, or when nothing is asked. Wakes the key when that changes."""
        asked = self._asked.get(key)
        if asked is None or asked[0] != question:
            self.forget(key)
            if question is not None:
                self._asked[key] = (question, asyncio.create_task(self._resolve(key, question)))
        return self._answers.get(key)

    def forget(self, key: Key) -> None:
        """Nobody asks for this endpoint any more."""
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked[1].cancel()
        self._answers.pop(key, None)

    async def _resolve(self, key: Key, question: Question) -> None:
        while True:
            found = await self._ask(question.model)
            if self._answers.get(key) != found:
                log.info("model hub", endpoint="/".join(key), model=question.model.repository, commit=found.commit, problem=found.problem)  # fmt: skip
                self._answers[key] = found
                self._wake(key)
            if found.commit:
                return
            await asyncio.sleep(self._retry_s)

    async def _ask(self, model: HubModel) -> Identity:
        url = f"{self._endpoint}/api/models/{quote(model.repository)}/revision/{quote(model.branch, safe='')}"
        where = f"hf://{model.repository}@{model.branch}"
        try:
            limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
            async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as response:
                if response.status in (401, 403, 404):
                    hint = "it is not there, or not public and spec.model.credentials name no Secret for it"
                    return Identity(problem=f"the hub answers {response.status} for {where}: {hint}", permanent=True)  # fmt: skip
                response.raise_for_status()
                commit = (await response.json()).get("sha")
        except aiohttp.ClientResponseError as error:
            return Identity(problem=f"the hub answers {error.status} for {where}; it is asked again")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError) as error:
            return Identity(problem=f"the hub does not answer for {where} ({type(error).__name__}); it is asked again")  # fmt: skip
        if not isinstance(commit, str) or not commit:
            return Identity(problem=f"the hub names no commit for {where}; it is asked again")
        return Identity(commit=commit)
