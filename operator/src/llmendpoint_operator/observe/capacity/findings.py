"""Asks the hub about a model at a known commit: its config.json, and the sizes of its files."""

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
"""Bytes of a config.json, or of the list of a model's files. The model's owner wrote them."""

ATTEMPTS = 6
"""Attempts before the model counts as unreadable. The hub did know its commit a moment ago."""


class HubModels(Inquiries[HubQuestion, Finding]):
    """Keeps each answer until its endpoint asks something else."""

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
            except Exception:  # any: the model's owner wrote config.json; the size stays unknown
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
