"""Sends one line to the gateway, and reads its whole answer."""

from typing import Any

import aiohttp
import msgspec

from llmendpoint_batch.core.bounds import ANSWER_BYTES
from llmendpoint_batch.core.outcomes import Broken, Reply, read_retry_after

HEADERS = {"Content-Type": "application/json", "x-llmendpoint-priority": "low"}
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

    async def send(self, endpoint: str, body: bytes, request_id: str) -> Reply | Broken:
        assert self._session is not None, "open() comes first"
        headers = HEADERS | {"x-request-id": request_id}
        try:
            async with self._session.post(
                self._gateway + endpoint,
                data=body,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                return await _read(response)
        except aiohttp.ClientConnectorError as error:
            return Broken(f"The gateway cannot be reached: {error}", sent=False)
        except TimeoutError:
            return Broken("The answer did not come in time.", sent=True, code="timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            told = f"The connection broke before the answer was whole: {str(error)[:200]}"
            return Broken(told, sent=True)


async def _read(response: aiohttp.ClientResponse) -> Reply | Broken:
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
