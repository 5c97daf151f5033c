"""Reads HTTP responses with a size limit and without decompression."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

PLAIN: dict[str, Any] = {"auto_decompress": False, "headers": {"Accept-Encoding": "identity"}}
"""Arguments for a ClientSession. A few compressed kB may expand to more bytes than there is memory."""


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body. Raises ValueError if it has more than `limit` bytes; the rest is not read."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > limit:
            raise ValueError(f"the answer is larger than {limit} bytes")
    return bytes(data)


async def read_json(response: aiohttp.ClientResponse, limit: int) -> Any:
    """The body as JSON. Raises ValueError if it is too large, no JSON, or nested too deep."""
    try:
        return json.loads(await read_bounded(response, limit))
    except RecursionError as error:
        raise ValueError("the answer is nested too deep") from error
