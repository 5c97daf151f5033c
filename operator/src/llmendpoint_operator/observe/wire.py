"""HTTP calls to pods and gateways: bounded in time and size, counted, with Unanswered as the only error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any

import aiohttp

from ..errors import Unanswered
from ..metrics import Metrics
from .bounded import PLAIN, read_bounded

Headers = Mapping[str, str]
NO_HEADERS: Headers = MappingProxyType({})

CONNECTIONS = 288
"""More than all slots together (prompts, samples, loads, first tokens, progress of downloads, adapters) plus a stream
and a question for each gateway, so that a question with a slot never waits for a connection."""
LARGEST_BODY = 16 * 2**20
"""Bytes. A gateway's `/state` with 1,000 endpoints has less than 1 MiB. Larger responses are rejected."""
LARGEST = {"prompt": 2**20, "metrics": 2 * 2**20, "load": 2**16, "progress": 2**16, "adapter": 2**18}
"""Limits in bytes by kind of question to a pod, whose image a tenant chose. A completion of 4,096 tokens has
less than 100 kB, a page of metrics less than 500 kB."""


class Wire:
    """One connection pool for all questions. `kind` labels the question in the metric, without an address."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Wire:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            **PLAIN,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def text(
        self, kind: str, url: str, timeout_s: float, body: Any = None, headers: Headers = NO_HEADERS
    ) -> str:
        """A page by GET, or by POST with a JSON `body`. Raises Unanswered on any status but 2xx, and if the
        page exceeds its limit in LARGEST."""
        try:
            limit = LARGEST.get(kind, LARGEST_BODY)
            found = await self._exchange(url, timeout_s, body, headers, limit)
        except Unanswered:
            self._metrics.evidence_calls.labels(kind, "failed").inc()
            raise
        self._metrics.evidence_calls.labels(kind, "ok").inc()
        return found

    async def json(
        self, kind: str, url: str, timeout_s: float, body: Any = None, headers: Headers = NO_HEADERS
    ) -> Any:
        """The page as JSON. Raises Unanswered also if it is no JSON."""
        text = await self.text(kind, url, timeout_s, body, headers)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unanswered("the answer is not JSON") from error

    async def lines(
        self, kind: str, url: str, silence_s: float, headers: Headers = NO_HEADERS
    ) -> AsyncIterator[bytes]:
        """The lines of an endless page as they arrive. Raises Unanswered on any status but 2xx, and after
        `silence_s` seconds without data. The metric counts the call once, when it opens or fails."""
        assert self._session is not None, "use Wire as a context manager"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=silence_s, sock_read=silence_s)
        opened = False
        try:
            async with self._session.get(
                url, timeout=timeout, allow_redirects=False, headers=headers
            ) as response:
                if not 200 <= response.status < 300:
                    raise Unanswered(f"HTTP {response.status}", response.status)
                opened = True
                self._metrics.evidence_calls.labels(kind, "ok").inc()
                async for line in _lines(response):
                    yield line
        except Unanswered:
            self._metrics.evidence_calls.labels(kind, "failed").inc()
            raise
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            self._metrics.evidence_calls.labels(kind, "broken" if opened else "failed").inc()
            raise Unanswered(f"{type(error).__name__}: {error}") from error

    async def _exchange(self, url: str, timeout_s: float, body: Any, headers: Headers, limit: int) -> str:
        assert self._session is not None, "use Wire as a context manager"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    "GET" if body is None else "POST", url, json=body, allow_redirects=False, headers=headers
                ) as response,
            ):
                data = await read_bounded(response, limit)
        except TimeoutError as error:
            raise Unanswered(f"no answer within {timeout_s:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        text = data.decode(errors="replace")
        if not 200 <= response.status < 300:
            raise Unanswered(f"HTTP {response.status}{_said(text)}", response.status)
        return text


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.content.iter_any():
        *found, rest = (rest + chunk).split(b"\n")
        if len(rest) > LARGEST_BODY:
            raise ValueError(f"a line is larger than {LARGEST_BODY} bytes")
        for line in found:
            if line:
                yield line


def _said(text: str) -> str:
    """The message of an error in OpenAI's format."""
    try:
        message = " ".join(str(json.loads(text)["error"]["message"]).split())
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {message[:120]}"
