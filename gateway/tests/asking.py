"""Requests to a gateway, and what comes of them."""

import asyncio
import http.client
import json

import httpx

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway

CHAT = "/v1/chat/completions"
LONG = 10_000
"""Tokens of a stream that goes on until its engine is told to finish."""
Answer = tuple[int, dict[str, str], bytes]


async def post(gateway: Gateway, model: str, path: str = CHAT, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        return await client.post(path, json={"model": f"team/{model}"}, headers=headers)


async def stream(gateway: Gateway, model: str, tokens: int, interval: float, delay: float = 0) -> str:
    """How a streaming request ended: `whole <engine>`, `cut`, or `failed <status>` when no byte of it came."""
    headers = {"x-tokens": str(tokens), "x-interval": str(interval), "x-delay": str(delay)}
    started = False
    try:
        async with (
            httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
            client.stream("POST", CHAT, json={"model": f"team/{model}"}, headers=headers) as response,
        ):
            if response.status_code != 200:
                return f"failed {response.status_code} {(await response.aread())[:200]!r}"
            started, tail = True, b""
            async for data in response.aiter_raw():
                tail = (tail + data)[-40:]
            return f"whole {response.headers['x-engine']}" if b"[DONE]" in tail else "cut"
    except httpx.HTTPError as error:
        return "cut" if started else f"failed {error!r}"


async def until(condition: object, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


def ejected(gateway: Gateway, name: str) -> list[str]:
    return [r["address"] for r in gateway.known(name)["replicas"] if r["breaker"] != "closed"]


def ask(gateway: Gateway, name: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    body = json.dumps({"model": f"team/{name}", "messages": []})
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    connection.close()
    return answer


def expect_a_replica(gateway: Gateway, name: str) -> None:
    """An endpoint that has none yet."""
    gateway.activate(name, "r1", replicas=1)
    gateway.routed(name, "r1")
