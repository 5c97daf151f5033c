"""Asks a model hub for the present commit of a source, once for each revision that is about to be made."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
import structlog

from ...core.models.identity import HubModel, Identity
from ...core.names import Key
from ..bounded import PLAIN, read_json
from ..inquiries import ANSWER_LIMIT_S, Inquiries

log = structlog.get_logger()

LARGEST_ANSWER = 4 * 2**20
"""Bytes. The answer lists the repository's files, of which its owner may have any number."""


@dataclass(frozen=True, slots=True)
class Question:
    """`revision`: hash of the revision that needs the answer. Another one asks again, even about this
    source."""

    revision: str
    model: HubModel


class Hub(Inquiries[Question, Identity]):
    """Keeps each answer until its endpoint asks something else: all passes over a revision see one commit."""

    async def _find(self, key: Key, question: Question) -> None:
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
            async with aiohttp.ClientSession(timeout=limit, **PLAIN) as session, session.get(url) as response:
                if response.status in (401, 403, 404):
                    hint = "the model does not exist, or it is not public and spec.model.credentials name no Secret for it"
                    return Identity(problem=f"the hub answers {response.status} for {where}: {hint}", permanent=True)  # fmt: skip
                response.raise_for_status()
                commit = (await read_json(response, LARGEST_ANSWER)).get("sha")
        except aiohttp.ClientResponseError as error:
            return Identity(problem=f"the hub answers {error.status} for {where}; the operator asks again")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError) as error:
            return Identity(problem=f"the hub does not answer for {where} ({type(error).__name__}); the operator asks again")  # fmt: skip
        if not isinstance(commit, str) or not commit:
            return Identity(problem=f"the hub names no commit for {where}; the operator asks again")
        return Identity(commit=commit)
