"""Asks the hub what a model is, of which the commit is known: its config.json, and the sizes of its files."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import structlog

from llmendpoint_fit.core.hub import config_path, files_path, hub_model
from llmendpoint_fit.errors import FitError

from ...core.capacity.findings import Finding, HubQuestion
from ...core.names import Key
from ..bounded import PLAIN, read_json
from ..inquiries import ANSWER_LIMIT_S, Inquiries

log = structlog.get_logger()

LARGEST_ANSWER = 4 * 2**20
"""Bytes of a config.json, and of the list of a model's files: whoever owns the model wrote them."""

ATTEMPTS = 6
"""After which the model counts as one that cannot be read: the hub knew its commit a moment ago."""


class HubModels(Inquiries[HubQuestion, Finding]):
    """Answers stay until the endpoint asks another question."""

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
                    problem=f"the hub does not say what {where} is: {error or type(error).__name__}"
                )
            except Exception:  # any: its owner wrote the config.json; the endpoint goes without a size
                log.exception("model not read", endpoint="/".join(key), model=where)
                finding = Finding(problem=f"{where} has a config.json that cannot be read")
                break
        log.info("model read", endpoint="/".join(key), model=where, problem=finding.problem)
        self._answers[key] = finding
        self._wake(key)

    async def _ask(self, question: HubQuestion, where: str) -> Any:
        limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
        repository, commit = question.model.repository, question.commit
        async with aiohttp.ClientSession(
            self._endpoint, timeout=limit, raise_for_status=True, **PLAIN
        ) as session:
            async with session.get(config_path(repository, commit)) as answer:
                config = await read_json(answer, LARGEST_ANSWER)
            async with session.get(files_path(repository, commit)) as answer:
                return hub_model(config, await read_json(answer, LARGEST_ANSWER), where)
