"""List and watch: brings the API server's objects into the store, for as long as the process lives.

Each kind is listed whole, then watched from there. A broken watch continues where it stopped. The whole list is read
again if the API server no longer knows that point, and every `RELIST_SECONDS`, so that a missed delete does not stay.
While the API server is unreachable the store stays as it is.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

import aiohttp
import orjson
import structlog
from aiohttp.http_exceptions import LineTooLong

from llmendpoint_gateway.access import Access
from llmendpoint_gateway.core.endpoint.objects import (
    REVISION_LABEL,
    Endpoint,
    Slice,
    object_key,
    parse_endpoint,
    parse_slice,
)
from llmendpoint_gateway.core.endpoint.reach import Reach
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.errors import MalformedObject
from llmendpoint_gateway.serve.placement.control import Control

RELIST_SECONDS = 600.0
WATCH_SECONDS = 240  # the API server ends the watch after this; a bookmark comes about every minute
SILENCE_SECONDS = 100.0  # without even a bookmark the connection counts as dead
MOST_BACKOFF = 5.0
AT_ONCE = 100
"""Objects of a list that are parsed before others of this loop, such as decisions, get their turn: 1 to 2 ms."""
GONE = 410
MOST_REASON = 500
"""Characters of the logged reason why an object is ignored: an object may hold much."""
log = structlog.get_logger()
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Source(Generic[Item]):
    kind: Enum
    group_version: str
    plural: str
    selector: str
    parse: Callable[[Mapping[str, Any]], Item]

    def path(self, namespace: str | None) -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group_version}{within}/{self.plural}"


SOURCES: tuple[Source[Endpoint | Slice], ...] = (
    Source(Kind.ENDPOINT, "llmendpoint.io/v1alpha1", "llmendpoints", "", parse_endpoint),
    Source(Kind.SLICE, "discovery.k8s.io/v1", "endpointslices", REVISION_LABEL, parse_slice),
)


class Expired(Exception):
    """The API server no longer has the changes since this version: list again."""


class Follower(ABC, Generic[Item]):
    """Follows one kind, and tells `reach` whether that works. `clock`: seconds, monotonic."""

    def __init__(
        self,
        source: Source[Item],
        session: aiohttp.ClientSession,
        access: Access,
        reach: Reach,
        namespace: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._source, self._session, self._access = source, session, access
        self._reach, self._clock = reach, clock
        self._path = source.path(namespace)
        reach.lost(source.kind, clock())

    @abstractmethod
    async def _list(self) -> str:
        """Read the whole list. Returns its version."""

    @abstractmethod
    def _take(self, event: str, body: dict[str, Any]) -> None:
        """Take over a change."""

    async def run(self) -> None:
        backoff = 0.1
        while True:
            try:
                version = await self._list()
                backoff = 0.1
                await self._follow(version)
            except Expired:
                log.info("watch expired, listing again", kind=self._source.kind.value)
            except (
                aiohttp.ClientError,
                TimeoutError,
                OSError,
                orjson.JSONDecodeError,
            ) as error:
                self._lost(error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, MOST_BACKOFF)

    async def _follow(self, version: str) -> None:
        """Watch from `version` until it is time for a new list."""
        until = self._clock() + RELIST_SECONDS
        backoff = 0.1
        while self._clock() < until:
            try:
                async for kind, body in self._events(version):
                    backoff = 0.1
                    self._reach.found(self._source.kind)
                    version = body["metadata"]["resourceVersion"]
                    self._take(kind, body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._lost(error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, MOST_BACKOFF)

    async def _events(self, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(WATCH_SECONDS)),
        ]
        response = await self._get(query, aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS))
        self._reach.found(self._source.kind)
        try:
            async for line in response.content:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == GONE:
                        raise Expired
                    raise aiohttp.ClientError(event["object"].get("message", "watch error"))
                yield event["type"], event["object"]
        except LineTooLong:  # an object as large as nobody expects; a list has no lines
            raise Expired from None
        finally:
            response.close()

    async def _get(
        self, query: list[tuple[str, str]], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._source.selector:
            query = [*query, ("labelSelector", self._source.selector)]
        response = await self._session.get(
            self._access.server + self._path, params=query, headers=self._access.headers(), timeout=timeout
        )
        if response.status == GONE:
            response.close()
            raise Expired
        if response.status != 200:
            text = (await response.text())[:500]
            raise aiohttp.ClientError(f"GET {self._path}: {response.status} {text}")
        return response

    def _parse(self, body: dict[str, Any]) -> Item | None:
        """None for an object that cannot be read: one bad object must not stop the rest."""
        try:
            return self._source.parse(body)
        except MalformedObject as error:
            log.warning("object ignored", kind=self._source.kind.value, reason=str(error)[:MOST_REASON])
        except Exception:  # any: users write these objects; this one is left out until it changes
            log.exception("object ignored", kind=self._source.kind.value)
        return None

    def _lost(self, error: Exception) -> None:
        seconds = self._reach.lost(self._source.kind, self._clock())
        log.warning(
            "API server out of reach, going on with what is known",
            kind=self._source.kind.value,
            reason=str(error) or type(error).__name__,
            seconds=round(seconds, 1),
        )


class Watch(Follower[Endpoint | Slice]):
    """Feeds one kind into `control`."""

    def __init__(
        self,
        source: Source[Endpoint | Slice],
        session: aiohttp.ClientSession,
        access: Access,
        control: Control,
        reach: Reach,
        namespace: str | None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(source, session, access, reach, namespace, clock)
        self._control, self._kind = control, Kind(source.kind)

    async def _list(self) -> str:
        response = await self._get([], aiohttp.ClientTimeout(total=30))
        body = orjson.loads(await response.read())
        self._reach.found(self._source.kind)
        objects: dict[str, Endpoint | Slice] = {}
        for number, item in enumerate(body["items"]):
            if parsed := self._parse(item):
                objects[object_key(item)] = parsed
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._control.relisted(self._kind, objects)
        log.info("listed", kind=self._source.kind.value, objects=len(objects))
        version: str = body["metadata"]["resourceVersion"]
        return version

    def _take(self, event: str, body: dict[str, Any]) -> None:
        if event == "BOOKMARK":
            return
        key = object_key(body)
        if event == "DELETED":
            self._control.deleted(self._kind, key)
        elif (parsed := self._parse(body)) is not None:
            self._control.applied(self._kind, key, parsed)
