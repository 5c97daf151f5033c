"""`/v1/chat/completions` and `/v1/completions`: from the HTTP request to the engine's, and back."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.generation import Generation, collect, events
from llmendpoint_server.api.responses import ChatShape, Shape, TextShape, Usage, json_response
from llmendpoint_server.api.schemas import ChatBody, CompletionBody, GenerationBody, parse_body
from llmendpoint_server.api.service import Service
from llmendpoint_server.core import request as core
from llmendpoint_server.errors import (
    BodyTooLarge,
    EngineEnded,
    InvalidRequest,
    PromptTooLong,
    RequestError,
    Unavailable,
    UnknownModel,
)
from llmendpoint_server.protocol import Loaded

MAX_BODY_BYTES = 32 * 2**20
LONG_PROMPT = 20_000
"""Characters from which a prompt is tokenized in a thread (about 5 ms)."""
DEFAULT_COMPLETION_TOKENS = 16
"""What OpenAI's /v1/completions gives when max_tokens is left out."""

T = TypeVar("T")


class ClientGone(Exception):
    """The caller closed the connection before the answer began."""


async def read_body(request: Request) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as that is known."""
    parts, size = [], 0
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"The request's body has {declared} bytes; this server takes at most {MAX_BODY_BYTES}."
        )
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge(
                f"The request's body has more than {MAX_BODY_BYTES} bytes, the most this server takes."
            )
    return b"".join(parts)


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the caller disconnects. Raises ClientGone then."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


class EventStream(Response):
    """Server-sent events of one generation, which is closed when the last is sent or the caller is gone."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, shape: Shape, include_usage: bool) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation = generation
        self._events = events(generation, shape, include_usage)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send_all(send))
        except (ClientGone, EngineEnded):
            pass  # without its last chunk: uvicorn closes the connection
        finally:
            self._generation.close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Completions:
    """`/v1/chat/completions` and `/v1/completions`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response:
        self._check_ready()
        body = parse_body(ChatBody, await read_body(request))
        self._check_model(body.model)
        text = self._service.tokenizer.render_chat([message.for_template() for message in body.messages])
        prompt = await self._encode(text, body.prompt_field, add_special_tokens=False)
        return await self._run(
            request, body, prompt, body.max_completion_tokens or body.max_tokens, ChatShape, "chatcmpl-"
        )

    async def text(self, request: Request) -> Response:
        self._check_ready()
        body = parse_body(CompletionBody, await read_body(request))
        self._check_model(body.model)
        given = body.single_prompt()
        prompt = (
            await self._encode(given, body.prompt_field, add_special_tokens=True)
            if isinstance(given, str)
            else tuple(given)
        )
        return await self._run(
            request, body, prompt, body.max_tokens or DEFAULT_COMPLETION_TOKENS, TextShape, "cmpl-"
        )

    def _check_ready(self) -> None:
        engine = self._service.engine
        if engine.state != "ready":
            raise Unavailable(f"This replica is {engine.state}: {engine.detail}. Try again.", retry_after=1.0)

    def _check_model(self, name: str) -> None:
        names = self._service.served_names
        if name not in names:
            raise UnknownModel(
                f"The model {name!r} does not exist here; this server has {', '.join(names)}.", param="model"
            )

    async def _encode(self, text: str, field: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Raises PromptTooLong where the number of characters shows it: it takes seconds to tokenize a large body."""
        tokenizer, limit = self._service.tokenizer, self._loaded.max_model_len
        least = -(-len(text) // tokenizer.longest_token)
        if least > limit:
            raise PromptTooLong(least, limit, field, at_least=True)
        if len(text) < LONG_PROMPT:
            return tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=add_special_tokens)

    @property
    def _loaded(self) -> Loaded:
        loaded = self._service.engine.loaded
        assert loaded is not None, "ready means loaded"
        return loaded

    def _sampling(
        self, body: GenerationBody, prompt: tuple[int, ...], max_tokens: int | None
    ) -> core.SamplingParams:
        """Checked against the model's limits. Raises InvalidRequest."""
        loaded = self._loaded
        if not prompt:
            raise InvalidRequest(
                f"{body.prompt_field} is empty; send at least one token.", param=body.prompt_field
            )
        room = loaded.max_model_len - len(prompt)
        if room < 1:
            raise PromptTooLong(len(prompt), loaded.max_model_len, body.prompt_field)
        for field, ids in ((body.prompt_field, prompt), ("stop_token_ids", tuple(body.stop_token_ids or ()))):
            if ids and not 0 <= min(ids) <= max(ids) < loaded.vocab_size:
                raise InvalidRequest(
                    f"{field} holds token ids outside 0 to {loaded.vocab_size - 1}.", param=field
                )
        defaults = self._service.default_sampling
        return core.SamplingParams(
            max_tokens=min(max_tokens or room, room),
            temperature=body.temperature
            if body.temperature is not None
            else defaults.get("temperature", 1.0),
            top_p=body.top_p if body.top_p is not None else defaults.get("top_p", 1.0),
            top_k=max(0, body.top_k or 0),
            seed=body.seed,
            stop_token_ids=frozenset(body.stop_token_ids or ()),
            ignore_eos=body.ignore_eos,
        )

    async def _run(
        self, request: Request, body: GenerationBody, prompt: tuple[int, ...], max_tokens: int | None,
        shape_class: type[Shape], prefix: str,
    ) -> Response:  # fmt: skip
        service, record = self._service, request.state.record
        sampling = self._sampling(body, prompt, max_tokens)
        request_id = prefix + uuid.uuid4().hex
        record.request_id, record.streamed, record.prompt_tokens = request_id, bool(body.stream), len(prompt)
        stream = service.engine.submit(
            core.Request(request_id, prompt, sampling, arrival=time.time(), salt=body.cache_salt or "")
        )
        text = TextStream(service.tokenizer.decode, body.stops)
        generation = Generation(service.engine, stream, text, Usage(len(prompt)), service.metrics, record)
        shape = shape_class(request_id, int(time.time()), service.served_names[0])
        handed_over = False
        try:
            await unless_gone(request.receive, generation.begin())
            if body.stream:
                handed_over = True
                return EventStream(generation, shape, body.include_usage)
            answer, reason = await unless_gone(request.receive, collect(generation))
            return json_response(shape.whole(answer, reason, generation.usage))
        except RequestError:
            generation.mark_failed()
            raise
        finally:
            if not handed_over:
                generation.close()
