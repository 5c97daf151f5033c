"""`POST /v1/files`: a file in one form."""

import asyncio
import secrets

from aiohttp import web

from llmendpoint_batch.api.answers import shown
from llmendpoint_batch.api.receiving import Form, Receiver, Wanted
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.records import INPUT, File, file_object
from llmendpoint_batch.core.upload import Gauge, check_purpose, clean_name, no_room
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.store import files
from llmendpoint_batch.store.connection import Connection


class Uploads:
    def __init__(self, service: Service, receiver: Receiver) -> None:
        self._service, self._receiver = service, receiver

    async def create(self, request: web.Request) -> web.Response:
        bounds, file_id = self._service.settings.bounds, f"file-{secrets.token_hex(12)}"
        wanted = Wanted(file_id, "file", ("purpose",), bounds.file_bytes, Gauge(bounds))
        form = await self._receiver.receive(request, wanted, _check)
        return await self._added(file_id, clean_name(form.name), form.size)

    async def _added(self, file_id: str, name: str, size: int) -> web.Response:
        service = self._service
        wall, keep = service.times.wall(), service.settings.retention_seconds
        file = File(file_id, name, INPUT, size, wall, wall + int(keep), service.times.age() + keep)
        try:
            await service.database.write(_add, file, service.settings.bounds.storage_bytes)
        except (Refused, StorageFailed):
            await asyncio.to_thread(service.blobs.remove, file_id)
            raise
        return shown(file_object(file))


def _add(connection: Connection, file: File, storage_bytes: int) -> None:
    if files.check_room(connection, storage_bytes) < file.bytes:
        raise no_room(storage_bytes)  # another upload took it
    files.add(connection, file)


def _check(form: Form) -> None:
    check_purpose(form.texts.get("purpose"))
