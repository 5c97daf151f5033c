"""`/v1/chat/completions` and `/v1/completions`: from the HTTP request to the engine's request, and back."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llmendpoint_server.api.answer import Account, Answer
from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.disconnect import ClientGone, unless_gone
from llmendpoint_server.api.generation import Generation, collect
from llmendpoint_server.api.http_answer import WRITE_SOON, WriteSoon
from llmendpoint_server.api.interfaces import Stream
from llmendpoint_server.api.pieces import Whole
from llmendpoint_server.api.prepared import Prepared
from llmendpoint_server.api.preprocess import Kind, Preprocessor
from llmendpoint_server.api.record import Record
from llmendpoint_server.api.responses import Usage, json_response, pieces_of_json
from llmendpoint_server.api.schemas import ChatBody, CompletionBody
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.shapes import AnswerEvents, AnswerShape, ChatShape, TextShape
from llmendpoint_server.api.urgency import Urgency, read_urgency
from llmendpoint_server.api.view import View
from llmendpoint_server.core.request import Request as EngineRequest
from llmendpoint_server.errors import EngineEnded, RequestError, Unavailable

MakeShape = Callable[[str, int, str, View], AnswerShape]
"""From the answer's id, its time (Unix seconds), the model's name and the view."""


INLINE_SCORES = 256
"""Tokens with log probabilities, each with 20 alternatives, that are shown in the event loop: some ms."""


class EventStream(Response):
    """Server-sent events of one body's answers. Closes the generation after the last event, or when the caller is gone."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, events: AnswerEvents) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation = generation
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send_all(send, scope["state"][WRITE_SOON]))
        except (ClientGone, EngineEnded):
            pass  # no last chunk is sent, so uvicorn closes the connection
        finally:
            self._generation.close()

    async def _send_all(self, send: Send, write: WriteSoon) -> None:
        turn = asyncio.Lock()

        async def send_more(body: bytes = b"") -> None:
            """Waits first, if the caller does not keep up. One answer after another: what waits for a slow caller may be much, and
            all answers would be shown in the same turn of the event loop."""
            async with turn:
                await send({"type": "http.response.body", "body": body, "more_body": True})

        event = self._events.piece
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._generation.read(lambda piece: write(event(piece)), send_more)
        except RequestError as error:
            self._generation.mark_failed()
            await send_more(self._events.error(error))
            if isinstance(error, EngineEnded):  # the answer must not look whole
                raise
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Completions:
    """`/v1/chat/completions` and `/v1/completions`."""

    def __init__(self, service: Service, preprocessor: Preprocessor) -> None:
        self._service = service
        self._preprocessor = preprocessor
        self._rendering = ThreadPoolExecutor(1, "rendering")  # one at a time: each may take hundreds of MB

    async def chat(self, request: Request) -> Response:
        return await self.complete(request, ChatBody, ChatShape, "chatcmpl-")

    async def text(self, request: Request) -> Response:
        return await self.complete(request, CompletionBody, TextShape, "cmpl-")

    async def complete(self, request: Request, kind: Kind, make_shape: MakeShape, prefix: str) -> Response:
        """Answer a body of this kind, in this shape. `prefix`: of the answer's id."""
        self._check_ready()
        urgency = read_urgency(request.headers, self._service.default_deadline_ms)
        asked = await self._preprocessor.read(kind, request)
        service, record = self._service, request.state.record
        request_id = prefix + uuid.uuid4().hex
        record.request_id, record.streamed, record.prompt_tokens = (
            request_id,
            asked.stream,
            asked.prompt_tokens,
        )
        record.answers, record.max_tokens = asked.view.answers, asked.sampling.max_tokens
        model = asked.adapter or service.served_names[0]
        shape = make_shape(request_id, int(time.time()), model, asked.view)
        generation = self._start(request_id, asked, urgency, record)
        handed_over = False
        try:
            await unless_gone(request.receive, generation.begin())
            if asked.stream:
                events = shape.events(generation.usage, len(generation.answers))
                answer = EventStream(generation, events)
                handed_over = True
                return answer
            answers = await unless_gone(request.receive, collect(generation))
            return await self._whole(shape, answers, generation.usage)
        except RequestError:
            generation.mark_failed()
            raise
        finally:
            if not handed_over:
                generation.close()

    async def _whole(self, shape: AnswerShape, answers: Sequence[Whole], usage: Usage) -> Response:
        """In a thread if there is much to show: a million log probabilities take seconds."""
        scores = sum(len(answer.logprobs) + len(answer.prompt_scores) for answer in answers)
        if scores <= INLINE_SCORES:
            return json_response(shape.whole(answers, usage))

        def render() -> bytes:
            return b"".join(pieces_of_json(shape.whole(answers, usage)))

        content = await asyncio.get_running_loop().run_in_executor(self._rendering, render)
        return Response(content, media_type="application/json")

    def _start(self, request_id: str, asked: Prepared, urgency: Urgency, record: Record) -> Generation:
        """Nothing is left in the engine if one of the prompts is refused. Afterwards only the returned generation frees
        the requests there."""
        service = self._service
        field = asked.grammar.field if asked.grammar is not None else None
        account = Account(
            service.engine, service.metrics, record, Usage(asked.prompt_tokens), asked.arrived, field
        )
        streams: list[Stream] = []
        try:
            for order in self._orders(request_id, asked, urgency):
                streams += service.engine.submit(order).answers
            answers = [
                Answer(index, stream, self._text(asked), account, asked.make_reader(), asked.view)
                for index, stream in enumerate(streams)
            ]
        except BaseException:
            for stream in streams:
                stream.close()
            raise
        return Generation(answers, account)

    def _text(self, asked: Prepared) -> TextStream:
        tokenizer = self._service.tokenizer
        decode: Callable[[Sequence[int]], str] = tokenizer.keeping(asked.markers)
        if not asked.skip_special:
            decode = partial(tokenizer.decode, skip_special_tokens=False)
        return TextStream(
            decode, asked.stops, tokenizer.plain, asked.view.include_stop, asked.sampling.min_tokens
        )

    def _orders(self, request_id: str, asked: Prepared, urgency: Urgency) -> Iterator[EngineRequest]:
        """One for each prompt."""
        for at, prompt in enumerate(asked.prompts):
            yield EngineRequest(
                request_id if len(asked.prompts) == 1 else f"{request_id}-{at}", prompt, asked.sampling, asked.arrived,
                asked.salt, urgency.priority, urgency.deadline(asked.arrived), asked.view.answers,
                asked.adapter,
            )  # fmt: skip

    def _check_ready(self) -> None:
        engine = self._service.engine
        if engine.state != "ready" or engine.loaded is None:
            raise Unavailable(f"This replica is {engine.state}: {engine.detail}. Try again.", retry_after=1.0)
