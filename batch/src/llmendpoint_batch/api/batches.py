"""`/v1/batches`."""

import secrets
from typing import Any

import msgspec
from aiohttp import web

from llmendpoint_batch.api.answers import shown, whole_number
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.creation import read_wanted
from llmendpoint_batch.core.records import batch_object, list_object
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import batches

DEFAULT_PAGE, MOST_PAGE = 20, 100


class Batches:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: web.Request) -> web.Response:
        service = self._service
        wanted = read_wanted(await _body(request))
        batch_id = f"batch_{secrets.token_hex(12)}"
        batch = await service.database.write(
            batches.create, batch_id, wanted, service.times.wall(), service.times.age()
        )
        service.wake()
        return shown(batch_object(batch))

    async def list(self, request: web.Request) -> web.Response:
        limit = whole_number(request, "limit", DEFAULT_PAGE, MOST_PAGE)
        found, more = await self._service.database.read(batches.listed, request.query.get("after"), limit)
        return shown(list_object([batch_object(batch) for batch in found], more))

    async def get(self, request: web.Request) -> web.Response:
        return shown(batch_object(await self._service.database.read(batches.get, request.match_info["id"])))

    async def cancel(self, request: web.Request) -> web.Response:
        service = self._service
        batch = await service.database.write(batches.cancel, request.match_info["id"], service.times.wall())
        service.wake()
        return shown(batch_object(batch))


async def _body(request: web.Request) -> Any:
    try:
        return msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"The body is not valid JSON: {str(error)[:200]}.", code="invalid_json") from None
