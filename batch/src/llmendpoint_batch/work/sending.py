"""Sends requests to the gateway: a line or a response, whose whole answer is read, or a stream."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import msgspec

from llmendpoint_batch.core.bounds import ANSWER_BYTES
from llmendpoint_batch.core.outcomes import Broken, Reply, read_retry_after

RESPONSES = "/v1/responses"
DIRECT_HEADER, DIRECT = "x-llmendpoint-responses", "direct"
"""The gateway sends `/v1/responses` to this service, but not what has this header: that goes to the endpoint. Whoever else
sends it gets an answer that is not stored."""
PRIORITY_HEADER = "x-llmendpoint-priority"
LOW = "low"
"""The priority of lines, and of a background response whose caller asked for none: nobody waits at the connection."""
HEADERS = {"Content-Type": "application/json", DIRECT_HEADER: DIRECT}
CHUNK = 1 << 16
LONGEST_REQUEST_ID = 200


class _Error(msgspec.Struct):
    code: Any = None


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


class Sender:
    """`gateway`: its base URL, without /v1. `seconds`: the longest time for one answer."""

    def __init__(self, gateway: str, seconds: float) -> None:
        self._gateway = gateway.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        # The number of lines under way is the runner's matter.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def open_request(
        self, endpoint: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """For who reads the answer as it comes. Raises what aiohttp raises."""
        assert self._session is not None, "open() comes first"
        given = {name: value for name, value in headers.items() if value}
        return self._session.post(
            self._gateway + endpoint,
            data=body,
            headers=HEADERS | given,
            timeout=self._timeout,
            allow_redirects=False,
        )

    async def send(
        self, endpoint: str, body: bytes, request_id: str, priority: str = LOW, **more: str
    ) -> Reply | Broken:
        """`more`: further headers."""
        headers = {"x-request-id": request_id, PRIORITY_HEADER: priority, **more}
        try:
            async with self.open_request(endpoint, body, headers) as response:
                return await read_reply(response)
        except aiohttp.ClientConnectorError as error:
            return Broken(f"The gateway cannot be reached: {error}", sent=False)
        except TimeoutError:
            return Broken("The answer did not come in time.", sent=True, code="timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            told = f"The connection broke before the answer was whole: {str(error)[:200]}"
            return Broken(told, sent=True)


async def read_reply(response: aiohttp.ClientResponse) -> Reply | Broken:
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK):
        body += chunk
        if len(body) > ANSWER_BYTES:
            told = f"The answer is longer than {ANSWER_BYTES} bytes."
            return Broken(told, sent=True, code="answer_too_long", final=True)
    return Reply(
        response.status,
        bytes(body),
        response.headers.get("x-request-id", "")[:LONGEST_REQUEST_ID],
        "" if response.status < 300 else _code(bytes(body)),
        read_retry_after(response.headers.get("retry-after")),
    )


def _code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body, type=_ErrorBody).error.code
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return ""
    return code if isinstance(code, str) else ""
