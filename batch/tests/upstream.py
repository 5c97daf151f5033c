"""A small gateway on a socket: it answers each line by its own text, and misbehaves as it is told."""

import asyncio
import json
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
    bodies: list[Json] = field(default_factory=list)
    now: int = 0
    most: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.path == "/v1/responses":
            body["prompt"] = last_text(body)
            self.bodies.append(body)
        self.asked[body["prompt"]] += 1
        self.order.append(body["prompt"])
        self.headers.append(dict(request.headers))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
            if body.get("stream") and self.answer is None and "bad" not in body["prompt"]:
                return await streamed(request, body, self.seconds)
            return await (self.answer or usual)(body)
        finally:
            self.now -= 1


async def usual(body: Json) -> web.StreamResponse:
    if "bad" in body["prompt"]:
        return error(400, "invalid_value")
    if "input" in body:
        return web.json_response(response_of(body))
    return web.json_response({"object": "text_completion", "choices": [{"text": body["prompt"][::-1]}]})


def items_of(body: Json) -> list[Json]:
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def last_text(body: Json) -> str:
    content = items_of(body)[-1].get("content", "")
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def response_of(body: Json, status: str = "completed") -> Json:
    """Its text: how many items it was given, and the last one's text backwards."""
    text = f"{len(items_of(body))} {last_text(body)[::-1]}"
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "msg_engine",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 3,
    }  # fmt: skip
    return {
        "id": "resp_engine", "object": "response", "created_at": 7, "model": body["model"], "status": status,
        "output": [message] if status == "completed" else [], "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [], "usage": usage if status == "completed" else None, "store": False, "error": None,
        "metadata": body.get("metadata") or {}, "instructions": body.get("instructions"),
    }  # fmt: skip


async def streamed(request: web.Request, body: Json, seconds: float) -> web.StreamResponse:
    """As an engine does it. A prompt with "broken" ends in the middle."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    whole = response_of(body)
    text = whole["output"][0]["content"][0]["text"]
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": response_of(body, "in_progress")}),
        ("response.in_progress", {"response": response_of(body, "in_progress")}),
        ("response.output_item.added", {"output_index": 0, "item": {**whole["output"][0], "content": []}}),
        ("response.content_part.added", {
            "output_index": 0, "content_index": 0, "item_id": "msg_engine", "part": {"type": "output_text", "text": "", "annotations": []},
        }),
        *(
            ("response.output_text.delta", {"output_index": 0, "content_index": 0, "item_id": "msg_engine", "delta": c, "logprobs": []})
            for c in text
        ),
        ("response.completed", {"response": whole}),
    ]  # fmt: skip
    for number, (name, fields) in enumerate(events):
        if number == 6 and "broken" in body["prompt"]:
            assert request.transport is not None
            request.transport.abort()
            return answer
        data = json.dumps({"type": name, "sequence_number": number, **fields})
        await answer.write(f"event: {name}\ndata: {data}\n\n".encode())
        await asyncio.sleep(seconds / 20)
    return answer


def error(status: int, code: str, **headers: str) -> web.Response:
    shown = {"error": {"message": code, "type": "x", "param": None, "code": code}}
    return web.json_response(shown, status=status, headers=headers)


@asynccontextmanager
async def serve_upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post(path, upstream.handle) for path in ("/v1/completions", "/v1/responses")])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield upstream
    finally:
        await runner.cleanup()
