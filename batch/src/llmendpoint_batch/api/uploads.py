"""`POST /v1/files`: a multipart form, whose file goes to the disk piece by piece."""

import asyncio
import secrets
from collections.abc import AsyncIterator

from aiohttp import BodyPartReader, MultipartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from llmendpoint_batch.api.answers import shown
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.records import INPUT, File, file_object
from llmendpoint_batch.core.upload import Gauge, clean_name, no_room
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.store import files
from llmendpoint_batch.store.blobs import Writing
from llmendpoint_batch.store.connection import Connection

CHUNK = 1 << 16
TOGETHER = 1 << 20
"""Bytes that are written at a time."""
AT_A_TIME = 16
"""Uploads under way."""
MOST_PARTS, FIELD_BYTES = 4, 100
FORM_BYTES = 16 << 10
"""What a form may have beside the file."""
SILENT_SECONDS, UPLOAD_SECONDS = 60.0, 3600.0
BAD_FORM = (ValueError, HttpProcessingError)
"""What aiohttp's parser raises."""
NO_FORM = "The body must be a form (multipart/form-data) with the fields purpose and file"


class Uploads:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._sizes: dict[str, int] = {}
        """Of the uploads under way, what they have written so far."""

    async def create(self, request: web.Request) -> web.Response:
        bounds = self._service.settings.bounds
        if request.content_type != "multipart/form-data":
            raise Refused(f"{NO_FORM}.", code="unsupported_media_type", status=415)
        if (request.content_length or 0) > bounds.file_bytes + FORM_BYTES:
            told = f"The file is larger than {bounds.file_bytes} bytes."
            raise Refused(told, param="file", code="file_too_large", status=413)
        if len(self._sizes) >= AT_A_TIME:
            told = f"{AT_A_TIME} uploads are under way. Try again later."
            raise Refused(told, code="too_many_uploads", status=429)
        file_id = f"file-{secrets.token_hex(12)}"
        self._sizes[file_id] = 0
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                return await self._receive(request, file_id)
        except TimeoutError:
            told = f"The upload stood still for {SILENT_SECONDS:.0f} s, or took over {UPLOAD_SECONDS:.0f} s."
            raise Refused(told, code="request_timeout", status=408) from None
        except BAD_FORM as error:
            raise Refused(f"{NO_FORM}: {str(error)[:200]}", code="invalid_form") from None
        finally:
            del self._sizes[file_id]

    async def _receive(self, request: web.Request, file_id: str) -> web.Response:
        service, purpose, name = self._service, None, None
        room = await service.database.read(files.check_room, service.settings.bounds.storage_bytes)
        writing = await asyncio.to_thread(service.blobs.begin, file_id)
        try:
            async with asyncio.timeout(None) as silence:
                async for part in _parts(await request.multipart(), silence):
                    if part.name == "purpose":
                        purpose = await _field(part)
                    elif part.name == "file" and name is None:
                        name = clean_name(part.filename)
                        await self._copy(part, writing, file_id, room, silence)
                    else:
                        told = f"Unknown field or second file: {str(part.name)[:100]!r}. {NO_FORM}."
                        raise Refused(told, param=str(part.name)[:100], code="unknown_parameter")
            _check(purpose, name)
            await asyncio.to_thread(writing.keep)
        finally:
            await asyncio.shield(asyncio.to_thread(writing.drop))
        return await self._added(file_id, name or "", writing.size)

    async def _copy(
        self, part: BodyPartReader, writing: Writing, file_id: str, room: int, silence: asyncio.Timeout
    ) -> None:
        gauge, waiting = Gauge(self._service.settings.bounds), bytearray()
        while chunk := await _chunk(part, silence):
            gauge.take(chunk, room - sum(self._sizes.values()))
            self._sizes[file_id] += len(chunk)
            waiting += chunk
            if len(waiting) >= TOGETHER:
                await asyncio.to_thread(writing.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(writing.write, bytes(waiting))

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


def _check(purpose: str | None, name: str | None) -> None:
    if purpose is None:
        raise Refused(
            f'purpose is missing: it is "{INPUT}".', param="purpose", code="missing_required_parameter"
        )
    if purpose != INPUT:
        raise Refused(f'purpose must be "{INPUT}", got {purpose[:100]!r}.', param="purpose")
    if name is None:
        raise Refused(f"file is missing. {NO_FORM}.", param="file", code="missing_required_parameter")


async def _parts(form: MultipartReader, silence: asyncio.Timeout) -> AsyncIterator[BodyPartReader]:
    for _ in range(MOST_PARTS + 1):
        _heard(silence)
        part = await form.next()
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise Refused(f"A form within the form is not taken. {NO_FORM}.", code="invalid_form")
        for header in (hdrs.CONTENT_ENCODING, hdrs.CONTENT_TRANSFER_ENCODING):
            if part.headers.get(header, "binary").lower() not in ("binary", "identity", "8bit", "7bit"):
                raise Refused(f"A part of the form has {header}. Send it as it is.", code="invalid_form")
        yield part
    raise Refused(f"The form has more than {MOST_PARTS} parts. {NO_FORM}.", code="invalid_form")


async def _chunk(part: BodyPartReader, silence: asyncio.Timeout) -> bytes:
    _heard(silence)
    return await part.read_chunk(CHUNK)


def _heard(silence: asyncio.Timeout) -> None:
    silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)


async def _field(part: BodyPartReader) -> str:
    data = b""
    while chunk := await part.read_chunk(CHUNK):
        data += chunk
        if len(data) > FIELD_BYTES:
            told = f"{part.name} is longer than {FIELD_BYTES} bytes."
            raise Refused(told, param=part.name)
    return data.decode(errors="replace")
