"""A multipart form whose file goes to the disk piece by piece."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import BodyPartReader, MultipartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from llmendpoint_batch.api.service import Service
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import files
from llmendpoint_batch.store.blobs import Writing

CHUNK = 1 << 16
TOGETHER = 1 << 20
"""Bytes that are written at a time."""
AT_A_TIME = 16
"""Uploads under way."""
SLOW_AFTER_SECONDS, SLOW_RATE = 60.0, 16 << 10
"""Where all places are taken, a new upload gets that of one which has come for so long with fewer bytes a second. Otherwise whoever sends
a byte a minute would keep a place for an hour."""
MOST_PARTS, FIELD_BYTES = 4, 100
FORM_BYTES = 16 << 10
"""What a form may have beside the file."""
SILENT_SECONDS, UPLOAD_SECONDS = 60.0, 3600.0
BAD_FORM = (ValueError, HttpProcessingError)
"""What aiohttp's parser raises."""


class Gauging(Protocol):
    def take(self, data: bytes, room: int) -> None:
        """Raises Refused at the first byte too many."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """`blob_id`: of the file's bytes. `file`: the field that has it. `most`: its bytes."""

    blob_id: str
    file: str
    texts: Collection[str]
    most: int
    gauge: Gauging

    @property
    def told(self) -> str:
        named = " and ".join([*self.texts, self.file])
        return f"The body must be a form (multipart/form-data) with {'the fields' if self.texts else 'the field'} {named}"


@dataclass(slots=True)
class Form:
    """`name`: the file's; None: there was no file."""

    name: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True)
class Arriving:
    """An upload under way: since when (seconds, of the event loop's clock), and its bytes so far."""

    since: float
    timeout: asyncio.Timeout
    size: int = 0

    def is_slow(self, now: float) -> bool:
        return now - self.since >= SLOW_AFTER_SECONDS and self.rate(now) < SLOW_RATE

    def rate(self, now: float) -> float:
        return self.size / max(now - self.since, 1e-3)


class Receiver:
    """Of all uploads of the service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._arriving: dict[str, Arriving] = {}
        """By the ids of their blobs."""

    async def receive(self, request: web.Request, wanted: Wanted, check: Callable[[Form], None]) -> Form:
        """The bytes are kept if `check` does not raise Refused."""
        if request.content_type != "multipart/form-data":
            raise Refused(f"{wanted.told}.", code="unsupported_media_type", status=415)
        if (request.content_length or 0) > wanted.most + FORM_BYTES:
            told = f"The file is larger than {wanted.most} bytes."
            raise Refused(told, param=wanted.file, code="file_too_large", status=413)
        now = asyncio.get_running_loop().time()
        if len(self._arriving) >= AT_A_TIME and not self._end_slowest(now):
            told = f"{AT_A_TIME} uploads are under way. Try again later."
            raise Refused(told, code="too_many_uploads", status=429)
        timeout = asyncio.timeout(UPLOAD_SECONDS)
        self._arriving[wanted.blob_id] = Arriving(now, timeout)
        try:
            async with timeout:
                return await self._read(request, wanted, check)
        except TimeoutError:
            told = (
                f"The upload stood still for {SILENT_SECONDS:.0f} s, took over {UPLOAD_SECONDS:.0f} s, or came with less than "
                f"{SLOW_RATE} bytes a second while others waited."
            )
            raise Refused(told, code="request_timeout", status=408) from None
        except BAD_FORM as error:
            raise Refused(f"{wanted.told}: {str(error)[:200]}", code="invalid_form") from None
        finally:
            self._arriving.pop(wanted.blob_id, None)

    def _end_slowest(self, now: float) -> bool:
        """False if none is slow."""
        slow = [blob_id for blob_id, one in self._arriving.items() if one.is_slow(now)]
        if not slow:
            return False
        slowest = self._arriving.pop(min(slow, key=lambda blob_id: self._arriving[blob_id].rate(now)))
        slowest.timeout.reschedule(now)
        return True

    async def _read(self, request: web.Request, wanted: Wanted, check: Callable[[Form], None]) -> Form:
        service, form = self._service, Form()
        room = await service.database.read(files.check_room, service.settings.bounds.storage_bytes)
        writing = await asyncio.to_thread(service.blobs.begin, wanted.blob_id)
        try:
            async with asyncio.timeout(None) as silence:
                async for part in _parts(await request.multipart(), silence, wanted):
                    if part.name is not None and part.name in wanted.texts:
                        form.texts[part.name] = await _field(part)
                    elif part.name == wanted.file and form.name is None:
                        form.name = part.filename or ""
                        await self._copy(part, writing, wanted, room, silence)
                    else:
                        told = f"Unknown field or second file: {str(part.name)[:100]!r}. {wanted.told}."
                        raise Refused(told, param=str(part.name)[:100], code="unknown_parameter")
            form.size = writing.size
            check(form)
            if form.name is None:
                told = f"{wanted.file} is missing. {wanted.told}."
                raise Refused(told, param=wanted.file, code="missing_required_parameter")
            await asyncio.to_thread(writing.keep)
        finally:
            await asyncio.shield(asyncio.to_thread(writing.drop))
        return form

    async def _copy(
        self, part: BodyPartReader, writing: Writing, wanted: Wanted, room: int, silence: asyncio.Timeout
    ) -> None:
        waiting, arriving = bytearray(), self._arriving.get(wanted.blob_id)
        if arriving is None:
            raise TimeoutError  # another has its place
        while chunk := await _chunk(part, silence):
            wanted.gauge.take(chunk, room - sum(one.size for one in self._arriving.values()))
            arriving.size += len(chunk)
            waiting += chunk
            if len(waiting) >= TOGETHER:
                await asyncio.to_thread(writing.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(writing.write, bytes(waiting))


async def _parts(
    form: MultipartReader, silence: asyncio.Timeout, wanted: Wanted
) -> AsyncIterator[BodyPartReader]:
    for _ in range(MOST_PARTS + 1):
        _heard(silence)
        part = await form.next()
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise Refused(f"A form within the form is not taken. {wanted.told}.", code="invalid_form")
        for header in (hdrs.CONTENT_ENCODING, hdrs.CONTENT_TRANSFER_ENCODING):
            if part.headers.get(header, "binary").lower() not in ("binary", "identity", "8bit", "7bit"):
                raise Refused(f"A part of the form has {header}. Send it as it is.", code="invalid_form")
        yield part
    raise Refused(f"The form has more than {MOST_PARTS} parts. {wanted.told}.", code="invalid_form")


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
