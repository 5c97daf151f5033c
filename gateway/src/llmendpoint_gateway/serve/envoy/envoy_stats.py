"""Envoy's own counters, read from its admin socket."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import orjson

from llmendpoint_gateway.core.envoy.attempt_counts import read_attempts, stats_pattern
from llmendpoint_gateway.core.envoy.bootstrap import LIMIT
from llmendpoint_gateway.core.envoy.listener import STATS_NAME
from llmendpoint_gateway.core.envoy.request_stats import STATS_PATTERN
from llmendpoint_gateway.errors import EnvoyAway

OPEN = f"http.{STATS_NAME}.downstream_cx_active"
REFUSED = f"http.{STATS_NAME}.adaptive_concurrency.gradient_controller.rq_blocked"
TIMEOUT = aiohttp.ClientTimeout(total=2)


class EnvoyStats:
    """A context manager that closes its connection at the end."""

    def __init__(self, admin_socket: Path) -> None:
        self._socket = admin_socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "EnvoyStats":
        connector = aiohttp.UnixConnector(str(self._socket))
        self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def attempts(self, endpoint: str, known: Iterable[str]) -> dict[str, Any]:
        """The answer of `/revisions` (docs/contribute/contracts.md). `known`: revisions that have counters even without
        attempts.

        Raises EnvoyAway if the admin socket does not answer, or if Envoy was restarted in between.
        """
        before = await self._instance()
        stats = await self._get("/stats", {"filter": stats_pattern(endpoint), "format": "json"})
        if await self._instance() != before:
            raise EnvoyAway("Envoy was started anew while its counters were read; ask again")
        return {"instance": before, "revisions": read_attempts(stats, endpoint, known)}

    async def requests(self) -> str:
        """What serve/request_page.py reads. Raises EnvoyAway."""
        return await self._text("/stats/prometheus", {"filter": STATS_PATTERN})

    async def connections(self) -> int:
        """How many connections callers have open. Raises EnvoyAway."""
        query = {"filter": f"^{OPEN}$", "type": "Gauges", "format": "json"}
        gauges = (await self._get("/stats", query))["stats"]
        return int(sum(gauge["value"] for gauge in gauges))

    async def refused(self) -> int:
        """How many requests Envoy refused since its start because it had no place for them. Raises EnvoyAway."""
        query = {"filter": f"^{REFUSED}$", "type": "Counters", "format": "json"}
        counters = (await self._get("/stats", query))["stats"]
        return int(sum(counter["value"] for counter in counters))

    async def most_connections(self) -> float:
        """How many connections callers may open. The page that says so has 120 kB. Raises EnvoyAway."""
        most: float = (await self._get("/server_info", {}))["node"]["metadata"][LIMIT]
        return most

    async def _instance(self) -> str:
        """Envoy's node id; the bootstrap has a new one for each start."""
        instance: str = (await self._get("/server_info", {}))["node"]["id"]
        return instance

    async def _get(self, path: str, query: dict[str, str]) -> Any:
        return orjson.loads(await self._text(path, query))

    async def _text(self, path: str, query: dict[str, str]) -> str:
        assert self._session is not None
        try:
            async with self._session.get(f"http://envoy{path}", params=query) as response:
                response.raise_for_status()
                return await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EnvoyAway(f"Envoy's admin socket {self._socket} does not answer: {error!r}") from None
