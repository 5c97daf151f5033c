"""`/v1/responses`: stored, continued by `previous_response_id`, in the background if the caller wants it so."""

import asyncio
import secrets
from dataclasses import dataclass, field, replace

import msgspec
from aiohttp import web

from llmendpoint_batch.api.answers import one_of, shown, whole_number
from llmendpoint_batch.api.response_replays import Replay
from llmendpoint_batch.api.response_streams import CALLER_LEFT, Stream, as_engine_said
from llmendpoint_batch.api.rooms import Held, Room
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.bounds import BACKGROUND_SECONDS, COPIES, RESPONSE_BYTES
from llmendpoint_batch.core.event_stream import first_events
from llmendpoint_batch.core.outcomes import Broken, Reply
from llmendpoint_batch.core.response_items import decode_items, encode_items, kept_items, page
from llmendpoint_batch.core.response_object import State, Stored, final_of, shown_response
from llmendpoint_batch.core.response_request import (
    Asked,
    kept_fields,
    read_asked,
    read_priority,
    upstream_body,
)
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import responses
from llmendpoint_batch.work.sending import PRIORITY_HEADER, RESPONSES

DEFAULT_PAGE, MOST_PAGE = 20, 100
MOST_EVENT = 10**9 - 1
PIECE_BYTES = 64 << 10
RECEIVE_SECONDS = 60.0
"""For a whole request, as at the gateway. A request that is never whole holds its bytes no longer."""
LEFT_SECONDS = 1.0
"""How often it is looked whether the caller of an answer that is no stream is still there."""
PASSED_HEADERS = (PRIORITY_HEADER, "x-llmendpoint-deadline-ms", "x-request-id", "traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the endpoint. `stored`: None: the caller wants nothing stored. `before`: how many items of earlier
    responses stand before the caller's."""

    stream: bool
    stored: Stored | None
    body: bytes
    before: int
    headers: dict[str, str] = field(default_factory=dict)


class Responses:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._room = Room()
        self._replay = Replay(service, self._room)

    async def create(self, request: web.Request) -> web.StreamResponse:
        if (request.content_length or 0) > RESPONSE_BYTES:
            raise _too_large()
        with self._room.holding() as held:
            asked = await asyncio.to_thread(read_asked, await _body(request, held))
            with self._room.place():
                return await self._asked(request, asked, held)

    async def _asked(self, request: web.Request, asked: Asked, held: Held) -> web.StreamResponse:
        priority = read_priority(request.headers.get(PRIORITY_HEADER))
        if not asked.store:
            return await self._unstored(request, asked, held)
        stored, before = await self._begun(asked, priority)
        if stored.background:
            self._service.background.wake()
            if asked.stream:
                asked.let_go()
                held.let_go()
                return await self._replay.send(request, stored.id, -1)
            return await self._sent(request, shown_response(stored))
        return await self._foreground(request, asked, stored, before, held)

    async def _begun(self, asked: Asked, priority: str) -> tuple[Stored, int]:
        """Without its items, which are in the database now; and the bytes of the conversation before it."""
        service, now = self._service, self._service.times
        response_id = f"resp_{secrets.token_hex(24)}"
        fields, items, count = await asyncio.to_thread(_kept_of, asked, response_id)
        state = State.QUEUED if asked.background else State.IN_PROGRESS
        new = Stored(
            response_id, state, asked.model, now.wall(), asked.background, priority, asked.previous, fields, items
        )  # fmt: skip
        keep_until = service.background.keep_until()
        deadline = now.age() + BACKGROUND_SECONDS if asked.background else keep_until
        if not asked.background:
            service.background.live.add(response_id)
        events = first_events(new) if asked.background and asked.stream else b""
        try:
            before = await service.database.write(
                responses.create, new, count, keep_until, deadline, service.settings.bounds.responses_bytes, events
            )  # fmt: skip
        except BaseException:
            service.background.live.discard(response_id)
            raise
        return replace(new, items=b""), before

    async def _unstored(self, request: web.Request, asked: Asked, held: Held) -> web.StreamResponse:
        before: list[msgspec.Raw] = []
        if asked.previous is not None:
            read = self._service.database.read
            held.more(COPIES * await read(responses.chain_bytes, asked.previous))
            before = await read(responses.conversation, asked.previous)
        return await self._answered(request, await self._call(request, asked, None, before))

    async def _foreground(
        self, request: web.Request, asked: Asked, stored: Stored, size: int, held: Held
    ) -> web.StreamResponse:
        """`size`: of the conversation before it."""
        try:
            held.more(COPIES * size)
            before = await self._service.database.read(responses.conversation, stored.previous)
            return await self._answered(request, await self._call(request, asked, stored, before))
        except Refused:  # a part of the conversation was deleted, there is no room for it, or no answer came
            await self._forget(stored)
            raise
        finally:
            self._service.background.live.discard(stored.id)

    async def _call(
        self, request: web.Request, asked: Asked, stored: Stored | None, before: list[msgspec.Raw]
    ) -> Call:
        own = asked.input
        if own is None and before:
            own = kept_items(asked, stored.id if stored else "resp_unstored")
        body = await asyncio.to_thread(upstream_body, asked.fields, before, own or [])
        headers = {name: _header(request, name) for name in PASSED_HEADERS}
        if not headers["x-request-id"]:
            headers["x-request-id"] = stored.id if stored else f"req_{secrets.token_hex(12)}"
        call = Call(asked.stream, stored, body, len(before), headers)
        asked.let_go()  # callers of this function hold both, as long as the answer takes
        before.clear()
        return call

    async def _answered(self, request: web.Request, call: Call) -> web.StreamResponse:
        if call.stream:
            stream = Stream(self._service, request, call.stored, call.before)
            return await stream.pass_on(call.body, call.headers)
        return await self._whole(request, call)

    async def _whole(self, request: web.Request, call: Call) -> web.StreamResponse:
        service, stored = self._service, call.stored
        headers = dict(call.headers)
        request_id, priority = headers.pop("x-request-id"), headers.pop(PRIORITY_HEADER)
        sending = asyncio.create_task(
            service.sender.send(RESPONSES, call.body, request_id, priority, **headers)
        )
        try:
            while not (await asyncio.wait([sending], timeout=LEFT_SECONDS))[0]:
                if request.transport is None or request.transport.is_closing():
                    await self._forget(stored)
                    return web.Response(status=CALLER_LEFT)
            result = sending.result()
        finally:
            sending.cancel()  # nothing, where it has ended
        kept = await self._kept(stored, result, call.before)
        return kept if isinstance(kept, web.Response) else await self._sent(request, kept)

    async def _forget(self, stored: Stored | None) -> None:
        """A response that has no answer and whose caller does not know its id."""
        if stored is None:
            return
        try:
            await self._service.database.write(responses.remove, stored.id)
        except Refused:
            pass  # deleted by somebody else

    async def _kept(self, stored: Stored | None, result: Reply | Broken, before: int) -> web.Response | bytes:
        if isinstance(result, Broken):
            code = "batch_service_upstream_failed" if result.code == "connection_failed" else result.code
            raise Refused(result.message, code=code, status=502)
        if stored is None or not 200 <= result.status < 300:
            await self._forget(stored)
            return as_engine_said(result, before)
        final = await asyncio.to_thread(final_of, stored, result.body)
        if final is None:
            told = "The endpoint's answer is no response object at its end."
            raise Refused(told, code="bad_answer", status=502)
        service = self._service
        await service.database.write(responses.finish, stored.id, final, service.background.keep_until())
        return final.answer

    async def get(self, request: web.Request) -> web.StreamResponse:
        stream = one_of(request, "stream", ("true", "false")) == "true"
        after = request.query.get("starting_after")
        if stream:
            number = -1 if after is None else whole_number(request, "starting_after", 0, MOST_EVENT, least=0)
            with self._room.place():
                return await self._replay.send(request, _id(request), number)
        if after is not None:
            raise Refused("starting_after goes with stream=true.", param="starting_after")
        text = shown_response(await self._service.database.read(responses.get, _id(request)))
        return await self._sent(request, text)

    async def _sent(self, request: web.Request, text: bytes) -> web.StreamResponse:
        """As the caller reads it. What is not read yet is counted: it stays in memory."""
        if len(text) <= PIECE_BYTES:
            return web.Response(body=text, content_type="application/json")
        with self._room.holding() as held:
            held.more(len(text))
            headers = {"Content-Type": "application/json", "Content-Length": str(len(text))}
            answer, view = web.StreamResponse(headers=headers), memoryview(text)
            await answer.prepare(request)
            for at in range(0, len(text), PIECE_BYTES):
                await answer.write(view[at : at + PIECE_BYTES])
            await answer.write_eof()
        return answer

    async def delete(self, request: web.Request) -> web.Response:
        response_id = _id(request)
        await self._service.database.write(responses.remove, response_id)
        self._service.background.stop(response_id)
        return shown({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        service, response_id = self._service, _id(request)
        text = shown_response(
            await service.database.write(responses.cancel, response_id, service.background.keep_until())
        )
        service.background.stop(response_id)
        return await self._sent(request, text)

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        limit = whole_number(request, "limit", DEFAULT_PAGE, MOST_PAGE)
        ascending = one_of(request, "order", ("asc", "desc")) == "asc"
        stored = await self._service.database.read(responses.get, _id(request))
        after, items = request.query.get("after"), stored.items
        del stored  # and all else that could keep it while a slow caller reads
        text = msgspec.json.encode(page(decode_items(items), limit, ascending, after))
        del items
        return await self._sent(request, text)


def _header(request: web.Request, name: str) -> str:
    value = request.headers.get(name, "")[:1000]
    return value if value.isascii() and value.isprintable() else ""


async def _body(request: web.Request, held: Held) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            async for data in request.content.iter_any():
                held.more(COPIES * len(data))
                body += data
                if len(body) > RESPONSE_BYTES:
                    raise _too_large()
    except TimeoutError:
        told = f"The body did not come within {RECEIVE_SECONDS:.0f} s."
        raise Refused(told, code="request_timeout", status=408) from None
    return bytes(body)


def _kept_of(asked: Asked, response_id: str) -> tuple[bytes, bytes, int]:
    """What is stored of a request, and how many items it has. Slow where it is large."""
    items = kept_items(asked, response_id)
    return kept_fields(asked), encode_items(items), len(items)


def _too_large() -> Refused:
    told = f"The body is larger than {RESPONSE_BYTES} bytes."
    return Refused(told, code="body_too_large", status=413)


def _id(request: web.Request) -> str:
    return request.match_info["id"]
