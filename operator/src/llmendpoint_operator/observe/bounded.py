"""Answers of others over HTTP: no more bytes of one are held than the asker says, and none are decompressed."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

PLAIN: dict[str, Any] = {"auto_decompress": False, "headers": {"Accept-Encoding": "identity"}}
"""For a ClientSession. A few kB may be compressed from more bytes than there is memory."""


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body; ValueError where it has more bytes than `limit`. What comes after them is not read."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > limit:
            raise ValueError(f"the answer is larger than {limit} bytes")
    return bytes(data)


async def read_json(response: aiohttp.ClientResponse, limit: int) -> Any:
    """The same, parsed; ValueError too where it is no JSON, or nested without end."""
    try:
        return json.loads(await read_bounded(response, limit))
    except RecursionError as error:
        raise ValueError("the answer is nested too deep") from error
