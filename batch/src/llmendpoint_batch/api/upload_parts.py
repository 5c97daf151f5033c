"""`/v1/uploads`: a file in parts, each a request of its own, put together at the end."""

import asyncio
import hashlib
import secrets
from typing import Any

import msgspec
from aiohttp import web

from llmendpoint_batch.api.answers import shown
from llmendpoint_batch.api.receiving import Form, Receiver, Wanted
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.bounds import PART_BYTES
from llmendpoint_batch.core.records import INPUT, File, file_object
from llmendpoint_batch.core.upload import Gauge
from llmendpoint_batch.core.uploads import (
    LASTS_SECONDS,
    Part,
    PartGauge,
    Upload,
    Wish,
    check_md5,
    part_object,
    read_completion,
    read_upload,
    upload_object,
)
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.store import uploads

PIECE = 1 << 20
JOBS = 2
"""Uploads that are put together at a time."""


class PartGone(Exception):
    """The bytes of a part are deleted: its upload was cancelled, or completed by another request."""


class UploadParts:
    def __init__(self, service: Service, receiver: Receiver) -> None:
        self._service, self._receiver = service, receiver
        self._places = asyncio.Semaphore(JOBS)

    async def create(self, request: web.Request) -> web.Response:
        service = self._service
        wish = read_upload(await _json(request), service.settings.bounds)
        wall, age = service.times.wall(), service.times.age()
        upload = Upload(
            f"upload_{secrets.token_hex(12)}", "pending", wish.filename, wish.bytes, wall, wall + LASTS_SECONDS,
            age + LASTS_SECONDS,
        )  # fmt: skip
        await service.database.write(uploads.create, upload, service.settings.bounds.storage_bytes)
        return shown(upload_object(upload))

    async def add(self, request: web.Request) -> web.Response:
        service = self._service
        upload, parts = await service.database.read(uploads.open_one, _id(request))
        left = upload.bytes - sum(part.bytes for part in parts)
        part_id = f"part_{secrets.token_hex(12)}"
        gauge = PartGauge(left, service.settings.bounds.storage_bytes)
        form = await self._receiver.receive(request, Wanted(part_id, "data", (), PART_BYTES, gauge), _check)
        part = Part(part_id, form.size)
        try:
            await service.database.write(
                uploads.add_part, upload.id, part, service.settings.bounds.storage_bytes
            )
        except (Refused, StorageFailed):
            await asyncio.to_thread(service.blobs.remove, part_id)
            raise
        return shown(part_object(part, upload.id, service.times.wall()))

    async def complete(self, request: web.Request) -> web.Response:
        wish = read_completion(await _json(request))
        service, upload_id = self._service, _id(request)
        upload, parts = await service.database.read(uploads.open_one, upload_id)
        chosen = uploads.in_order(upload, parts, wish.part_ids)
        file_id = f"file-{secrets.token_hex(12)}"
        wall, keep = service.times.wall(), service.settings.retention_seconds
        async with self._places:
            try:
                await asyncio.to_thread(self._join, file_id, chosen, wish)
            except PartGone:
                await service.database.read(uploads.open_one, upload_id)  # it ended meanwhile: so it is told
                raise
        deadline = service.times.age() + keep
        file = File(file_id, upload.filename, INPUT, upload.bytes, wall, wall + int(keep), deadline)
        try:
            done, old = await service.database.write(uploads.complete, upload_id, file)
        except (Refused, StorageFailed):
            await asyncio.to_thread(service.blobs.remove, file_id)
            raise
        await self._remove(old)
        return shown(upload_object(done, file_object(file)))

    def _join(self, file_id: str, parts: list[Part], wish: Wish) -> None:
        """Raises Refused where the whole breaks a bound of files, or has another MD5. Its parts stay then."""
        blobs, gauge = self._service.blobs, Gauge(self._service.settings.bounds)
        digest = hashlib.md5(usedforsecurity=False)
        writing = blobs.begin(file_id)
        try:
            for part in parts:
                for offset in range(0, part.bytes, PIECE):
                    data = self._read(part, offset)
                    gauge.take(data, len(data))  # the room was taken by the parts
                    digest.update(data)
                    writing.write(data)
            check_md5(wish, digest.hexdigest())
            writing.keep()
        finally:
            writing.drop()

    def _read(self, part: Part, offset: int) -> bytes:
        wanted = min(PIECE, part.bytes - offset)
        try:
            data = self._service.blobs.read(part.id, offset, wanted)
        except FileNotFoundError as error:
            raise PartGone(part.id) from error
        if len(data) < wanted:
            raise PartGone(part.id)
        return data

    async def cancel(self, request: web.Request) -> web.Response:
        service = self._service
        upload, old = await service.database.write(
            uploads.cancel, _id(request), service.background.keep_until()
        )
        await self._remove(old)
        return shown(upload_object(upload))

    async def _remove(self, ids: list[str]) -> None:
        for part_id in ids:
            await asyncio.to_thread(self._service.blobs.remove, part_id)


def _check(form: Form) -> None:
    if form.name is not None and not form.size:
        raise Refused("data is empty. A part has at least 1 byte.", param="data")


async def _json(request: web.Request) -> Any:
    try:
        return msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"The body is not valid JSON: {str(error)[:200]}.", code="invalid_json") from None


def _id(request: web.Request) -> str:
    return request.match_info["id"]
