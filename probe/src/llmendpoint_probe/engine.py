"""Asks the engine in the same pod whether it is there, and whether it can generate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import aiohttp

CONNECT_LIMIT_S = 5.0
QUESTION = "Say hello."
MAX_TOKENS = 2
NOT_OFFERED = (400, 404, 405, 422, 501)
"""Statuses from an engine without that API, or for a model without a chat template."""
COUNTS_TOKENS = re.compile(r"[a-zA-Z_:]*token[a-zA-Z_:]*_total[{ ]")


class EngineAway(Exception):
    """The connection was refused, reset or closed; the message says how."""


class GenerationFailed(Exception):
    """The engine did not generate; the message says what it answered. `refused`: it answered with 4xx, as a full engine
    does. That is no proof that it generates, and no sign that it is stuck."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Beat:
    """One answered heartbeat. `connections`: how many were made so far. `closing`: the engine announced that this
    connection ends with the answer, so the next new one is no sign of a restart."""

    status: int
    connections: int
    closing: bool


class Engine:
    """One engine at `url`. Heartbeats use one connection that is kept; if it is lost, a new one shows that."""

    def __init__(self, url: str, health_path: str, generation_timeout: float) -> None:
        self._url = url.rstrip("/")
        self._health = self._url + health_path
        self._generation_timeout = generation_timeout
        self._connections = 0
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(self._count)
        # No limit on the answer's time: a slow answer on the same connection is not a restart. Silence is measured
        # instead.
        self._heartbeats = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=86_400),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT_S),
            trace_configs=[trace],
        )
        self._generations = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    async def _count(self, *_: object) -> None:
        self._connections += 1

    async def close(self) -> None:
        await self._heartbeats.close()
        await self._generations.close()

    async def beat(self) -> Beat:
        """Send one heartbeat. Raises EngineAway."""
        try:
            async with self._heartbeats.get(self._health, allow_redirects=False) as response:
                await response.read()
                closing = response.headers.get("Connection", "").lower() == "close"
                old = response.version is not None and response.version < aiohttp.HttpVersion11
                return Beat(response.status, self._connections, closing or old)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineAway(f"{type(error).__name__}: {error}") from error

    async def tokens(self) -> tuple[str, ...]:
        """The lines of /metrics that count tokens, under whatever name; empty if there are none. Histograms are left
        out: generations that the probe asks for and gives up would show in them."""
        limit = aiohttp.ClientTimeout(total=CONNECT_LIMIT_S)
        try:
            async with self._generations.get(self._url + "/metrics", timeout=limit) as response:
                page = await response.text() if response.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError):
            return ()
        return tuple(line for line in page.splitlines() if COUNTS_TOKENS.match(line))

    async def generate(self) -> None:
        """Generate a few tokens with the first model that the engine lists. Raises GenerationFailed."""
        limit = aiohttp.ClientTimeout(total=self._generation_timeout, sock_connect=CONNECT_LIMIT_S)
        try:
            await self._generate(limit)
        except TimeoutError as error:
            said = f"no answer within {self._generation_timeout:g} s"
            raise GenerationFailed(said) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise GenerationFailed(f"{type(error).__name__}: {error}") from error

    async def _generate(self, limit: aiohttp.ClientTimeout) -> None:
        _, models = await self._ask("GET", "/v1/models", None, limit)
        listed = models.get("data") if isinstance(models, dict) else None
        if not listed:
            raise GenerationFailed("/v1/models lists no model")
        common = {"model": listed[0]["id"], "max_tokens": MAX_TOKENS, "temperature": 0}
        chat = {**common, "messages": [{"role": "user", "content": QUESTION}]}
        status, found = await self._ask("POST", "/v1/chat/completions", chat, limit)
        if status in NOT_OFFERED:
            status, found = await self._ask("POST", "/v1/completions", {**common, "prompt": QUESTION}, limit)
        if status != 200:
            raise GenerationFailed(f"the generation was answered with {status}", 400 <= status < 500)
        if not isinstance(found, dict) or not found.get("choices"):
            raise GenerationFailed("the generation's answer holds no choices")

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, limit: aiohttp.ClientTimeout
    ) -> tuple[int, Any]:
        async with self._generations.request(method, self._url + path, json=body, timeout=limit) as response:
            found = await response.json(content_type=None) if response.status == 200 else None
            return response.status, found
