"""`/v1/files`, without the upload (uploads.py)."""

import asyncio

from aiohttp import web

from llmendpoint_batch.api.answers import one_of, shown, whole_number
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.bounds import MOST_FILES
from llmendpoint_batch.core.records import INPUT, OUTPUT, file_object, list_object
from llmendpoint_batch.store import files

DEFAULT_PAGE = 1_000
PIECE = 1 << 20
"""Bytes that are read from the database at a time."""


class Files:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self, request: web.Request) -> web.Response:
        found, more = await self._service.database.read(
            files.listed,
            one_of(request, "purpose", (INPUT, OUTPUT)),
            request.query.get("after"),
            whole_number(request, "limit", DEFAULT_PAGE, MOST_FILES),
            one_of(request, "order", ("asc", "desc")) == "asc",
        )
        return shown(list_object([file_object(file) for file in found], more))

    async def get(self, request: web.Request) -> web.Response:
        return shown(file_object(await self._service.database.read(files.get, _id(request))))

    async def content(self, request: web.Request) -> web.StreamResponse:
        file = await self._service.database.read(files.get, _id(request))
        headers = {"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff"}
        if (path := self._service.blobs.path(file.id)) is not None:
            return web.FileResponse(path, chunk_size=1 << 18, headers=headers)
        answer = web.StreamResponse(headers=headers)
        answer.content_length = file.bytes
        await answer.prepare(request)
        for offset in range(0, file.bytes, PIECE):
            await answer.write(await asyncio.to_thread(self._service.blobs.read, file.id, offset, PIECE))
        return answer

    async def delete(self, request: web.Request) -> web.Response:
        service, file_id = self._service, _id(request)
        await service.database.write(files.remove, file_id)
        await asyncio.to_thread(service.blobs.remove, file_id)
        return shown({"id": file_id, "object": "file", "deleted": True})


def _id(request: web.Request) -> str:
    return request.match_info["id"]
