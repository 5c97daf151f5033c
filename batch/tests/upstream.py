"""A small gateway on a socket: it answers each line by its own text, and misbehaves as it is told."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Answer = Callable[[Json], Awaitable[web.StreamResponse]]


@dataclass
class Upstream:
    """`asked`: how often each prompt came. `answer`: None is the usual answer. `most`: the most requests at a time."""

    url: str = ""
    seconds: float = 0.0
    answer: Answer | None = None
    asked: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    now: int = 0
    most: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked[body["prompt"]] += 1
        self.order.append(body["prompt"])
        self.headers.append(dict(request.headers))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
            return await (self.answer or usual)(body)
        finally:
            self.now -= 1


async def usual(body: Json) -> web.StreamResponse:
    if "bad" in body["prompt"]:
        return error(400, "invalid_value")
    return web.json_response({"object": "text_completion", "choices": [{"text": body["prompt"][::-1]}]})


def error(status: int, code: str, **headers: str) -> web.Response:
    shown = {"error": {"message": code, "type": "x", "param": None, "code": code}}
    return web.json_response(shown, status=status, headers=headers)


@asynccontextmanager
async def serve_upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    app = web.Application()
    app.add_routes([web.post("/v1/completions", upstream.handle)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield upstream
    finally:
        await runner.cleanup()
