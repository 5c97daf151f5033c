"""A streamed response: the engine's events pass as they come, and the last one is stored before the caller has it."""

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec
import structlog
from aiohttp import web

from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.event_stream import Events, TooLong, event_of
from llmendpoint_batch.core.outcomes import Reply
from llmendpoint_batch.core.response_object import Final, Stored, cancelled, failed, without_earlier_items
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.store import responses
from llmendpoint_batch.work.sending import RESPONSES, read_reply

CALLER_LEFT = 499
"""The status that nobody reads, as other servers log it."""
log = structlog.get_logger()


class Stream:
    """`stored`: None: the caller wants nothing stored. `before`: how many items of earlier responses stand before the
    caller's."""

    def __init__(self, service: Service, request: web.Request, stored: Stored | None, before: int) -> None:
        self._service, self._request, self._stored, self._before = service, request, stored, before
        self._answer: web.StreamResponse | None = None
        self._kept, self._count = False, 0

    async def pass_on(self, body: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
        try:
            async with self._service.sender.open_request(RESPONSES, body, headers) as upstream:
                if upstream.status != 200 or upstream.content_type != "text/event-stream":
                    return await self._no_stream(upstream)
                return await self._events(upstream)
        except (aiohttp.ClientError, TimeoutError, TooLong, StorageFailed, ValueError) as error:
            return await self._broken(error)
        finally:
            if self._stored is not None and not self._kept:
                await asyncio.shield(self._close(self._stored))

    async def _no_stream(self, upstream: aiohttp.ClientResponse) -> web.Response:
        reply = await read_reply(upstream)
        if not isinstance(reply, Reply):
            raise Refused(reply.message, code=reply.code, status=502)
        return as_engine_said(reply, self._before)

    async def _events(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        answer = self._answer = web.StreamResponse(headers=_headers(upstream))
        await answer.prepare(self._request)
        events = Events(self._stored)
        async for data in upstream.content.iter_any():
            for event in events.take(data):
                if event.final is not None and not self._kept:
                    await self._keep(event.final)
                await answer.write(event.text)
                self._count += 1
        await answer.write_eof()
        return answer

    async def _keep(self, final: Final) -> None:
        assert self._stored is not None, "only the end of a stored one is noticed"
        service = self._service
        await service.database.write(
            responses.finish, self._stored.id, final, service.background.keep_until()
        )
        self._kept = True

    def _has_left(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def _broken(self, error: Exception) -> web.StreamResponse:
        """Of a stream that has begun the caller learns by an event, as OpenAI's SDK reads it."""
        if self._has_left():
            return self._answer or web.Response(status=CALLER_LEFT)
        if self._answer is None and isinstance(error, StorageFailed):
            raise error
        told = f"The endpoint's answer broke: {str(error)[:200] or type(error).__name__}"
        if self._answer is None:
            raise Refused(told, code="stream_broken", status=502) from None
        fields = {"code": "server_error", "message": told, "param": None}
        await self._answer.write(event_of("error", self._count, fields))
        if self._stored is not None:
            final = failed(self._stored, told)
            try:
                await self._keep(final)
            except StorageFailed:
                pass  # it is kept as failed when there is room again
            ended = {"response": msgspec.Raw(final.answer)}
            await self._answer.write(event_of("response.failed", self._count + 1, ended))
        await self._answer.write_eof()
        return self._answer

    async def _close(self, stored: Stored) -> None:
        """No last event came. Where the caller has seen no event, it does not know the id either."""
        try:
            if self._answer is None:
                await self._service.database.write(responses.remove, stored.id)
            else:
                told = "The stream of the endpoint broke."
                await self._keep(cancelled(stored) if self._has_left() else failed(stored, told))
        except Refused:
            pass  # deleted meanwhile
        except StorageFailed as error:
            log.error("a broken stream is closed later", response=stored.id, error=str(error))


def as_engine_said(reply: Reply, before: int) -> web.Response:
    """An answer of the gateway or of the engine, its error's places counted as the caller counts."""
    body = reply.body if reply.status < 300 else without_earlier_items(reply.body, before)
    headers = {} if reply.retry_after is None else {"Retry-After": f"{reply.retry_after:.0f}"}
    if reply.request_id:
        headers["x-request-id"] = reply.request_id
    return web.Response(body=body, status=reply.status, headers=headers, content_type="application/json")


def _headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    if request_id := upstream.headers.get("x-request-id"):
        headers["x-request-id"] = request_id
    return headers
