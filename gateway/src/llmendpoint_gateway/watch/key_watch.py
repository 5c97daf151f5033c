"""The watch of LLMKeys. There may be very many of them, so they are listed in pages, between which requests go on.

What cannot be read (the CRD is missing, or the right to list) is said aloud and tried again: until the keys were read once, nobody
gets in by one. Later the gateway goes on with the keys that it knows.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

import aiohttp
import orjson
import structlog

from llmendpoint_gateway.access import Access
from llmendpoint_gateway.core.endpoint.objects import object_key
from llmendpoint_gateway.core.identity.key_objects import Key, parse_key
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.watch.list_watch import MOST_REASON, Follower, Source


class Kind(Enum):
    """Not one of those that the view is made from."""

    KEY = "LLMKey"


PAGE, PAGE_BYTES, AT_ONCE = 100, 1 << 20, 10
"""Objects of a page, and how large one is if its objects are as those of the page before: they may have half a megabyte each. AT_ONCE:
objects that are read before requests get their turn, less than a millisecond of the usual ones."""
SOURCE = Source(Kind.KEY, "llmendpoint.io/v1alpha1", "llmkeys", "", parse_key)
log = structlog.get_logger()


class KeyWatch(Follower[Key]):
    """`keys.reach` tells whether it works."""

    def __init__(
        self,
        keys: KnownKeys,
        session: aiohttp.ClientSession,
        access: Access,
        namespace: str | None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(SOURCE, session, access, keys.reach, namespace, clock)
        self._keys = keys

    async def _list(self) -> str:
        names: set[str] = set()
        limit, query = PAGE, [("limit", str(PAGE))]
        while True:
            response = await self._get(query, aiohttp.ClientTimeout(total=30))
            text = await response.read()
            body = orjson.loads(text)
            self._reach.found(Kind.KEY)
            for number, item in enumerate(body["items"]):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                if (parsed := self._parse(item)) is not None:
                    self._keys.put(parsed)
                    names.add(parsed.key)
            more = body["metadata"].get("continue")
            if not more:
                break
            limit = min(max(limit * PAGE_BYTES // len(text), 1), PAGE)
            query = [("limit", str(limit)), ("continue", more)]
        await self._keys.listed(names)
        log.info("listed", kind=Kind.KEY.value, objects=len(names))
        version: str = body["metadata"]["resourceVersion"]
        return version

    def _take(self, event: str, body: dict[str, Any]) -> None:
        """A key that changes into what cannot be read lets nobody in any more."""
        if event == "BOOKMARK":
            return
        parsed = None if event == "DELETED" else self._parse(body)
        if parsed is None:
            self._keys.drop(object_key(body))
        else:
            self._keys.put(parsed)

    def _lost(self, error: Exception) -> None:
        self._reach.lost(Kind.KEY, self._clock())
        self._keys.problem = (str(error) or type(error).__name__)[:MOST_REASON]
        if self._keys.synced:
            log.warning(
                "LLMKeys cannot be read, going on with those that are known", reason=self._keys.problem
            )
        else:
            log.error("LLMKeys cannot be read: no key lets anybody in", reason=self._keys.problem)
