"""Asks the hub what a model is, of which the commit is known: its config.json, and the sizes of its files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import structlog

from llmendpoint_fit.core.hub import config_path, files_path, hub_model
from llmendpoint_fit.errors import FitError

from .core.findings import Finding, HubQuestion

log = structlog.get_logger()

Key = tuple[str, str]

ANSWER_LIMIT_S = 20.0
RETRY_S = 10.0
ATTEMPTS = 6
"""After which the model counts as one that cannot be read: the hub knew its commit a moment ago."""


class HubModels:
    """Answers stay until the endpoint asks another question."""

    def __init__(self, endpoint: str, wake: Callable[[Key], None], retry_s: float = RETRY_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._wake = wake
        self._retry_s = retry_s
        self._asked: dict[Key, tuple[HubQuestion, asyncio.Task[None]]] = {}
        self._answers: dict[Key, Finding] = {}

    def look(self, key: Key, question: HubQuestion | None) -> Finding | None:
        """What was found; None while nothing is, or when nothing is asked. Wakes the key once it is there."""
        asked = self._asked.get(key)
        if asked is None or asked[0] != question:
            self.forget(key)
            if question is not None:
                self._asked[key] = (question, asyncio.create_task(self._find(key, question)))
        return self._answers.get(key)

    def forget(self, key: Key) -> None:
        """Nobody asks for this endpoint any more."""
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked[1].cancel()
        self._answers.pop(key, None)

    async def _find(self, key: Key, question: HubQuestion) -> None:
        where = f"hf://{question.model.repository}@{question.commit}"
        finding = Finding()
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._retry_s)
            try:
                finding = Finding(await self._ask(question, where))
                break
            except FitError as error:
                finding = Finding(problem=f"{where}: {error}")
                break
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                finding = Finding(
                    problem=f"the hub does not tell what {where} is: {error or type(error).__name__}"
                )
        log.info("model read", endpoint="/".join(key), model=where, problem=finding.problem)
        self._answers[key] = finding
        self._wake(key)

    async def _ask(self, question: HubQuestion, where: str) -> Any:
        limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
        repository, commit = question.model.repository, question.commit
        async with aiohttp.ClientSession(self._endpoint, timeout=limit, raise_for_status=True) as session:
            async with session.get(config_path(repository, commit)) as answer:
                config = await answer.json(content_type=None)
            async with session.get(files_path(repository, commit)) as answer:
                return hub_model(config, await answer.json(content_type=None), where)
