"""Uploads in parts: what callers ask for, and what they see."""

import re
from dataclasses import dataclass
from typing import Any

from llmendpoint_batch.core.bounds import MOST_UPLOAD_PARTS, PART_BYTES, Bounds
from llmendpoint_batch.core.records import INPUT
from llmendpoint_batch.core.upload import check_purpose, clean_name, no_room
from llmendpoint_batch.errors import Refused

LASTS_SECONDS = 3600
"""After which an upload that was not completed is deleted, as OpenAI does it."""
FIELDS, COMPLETION = ("bytes", "filename", "mime_type", "purpose"), ("part_ids", "md5")
LONGEST_TYPE = 255
_MD5 = re.compile("[0-9a-fA-F]{32}")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    bytes: int
    filename: str


@dataclass(frozen=True, slots=True)
class Wish:
    """How an upload is completed. `md5`: lower case; empty: it is not checked."""

    part_ids: tuple[str, ...]
    md5: str


@dataclass(frozen=True, slots=True)
class Upload:
    """`status`: pending, completed, cancelled or expired. `deadline`: in the service's own time, when it ends, and after
    its end when it is forgotten."""

    id: str
    status: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Part:
    id: str
    bytes: int


class PartGauge:
    """`left`: bytes that the upload may still take."""

    def __init__(self, left: int, storage_bytes: int) -> None:
        self._left, self._storage_bytes = left, storage_bytes
        self.size = 0

    def take(self, data: bytes, room: int) -> None:
        """Raises Refused at the first byte too many."""
        self.size += len(data)
        if self.size > PART_BYTES:
            told = f"A part may have {PART_BYTES} bytes at most."
            raise Refused(told, param="data", code="file_too_large", status=413)
        if self.size > self._left:
            told = f"The parts together have more than the bytes of the upload: {self._left} were left for this one."
            raise Refused(told, param="data")
        if len(data) > room:
            raise no_room(self._storage_bytes)


def read_upload(body: Any, bounds: Bounds) -> Asked:
    """Raises Refused, with the field at fault."""
    fields = _object(body, FIELDS)
    purpose = fields.get("purpose")
    check_purpose(purpose if purpose is None or isinstance(purpose, str) else repr(purpose))
    size = fields.get("bytes")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= bounds.file_bytes:
        raise _wrong(fields, "bytes", f"the file's bytes, a whole number from 1 to {bounds.file_bytes}")
    name, kind = fields.get("filename"), fields.get("mime_type")
    if not isinstance(name, str) or not name:
        raise _wrong(fields, "filename", "a text")
    if not isinstance(kind, str) or len(kind) > LONGEST_TYPE:
        raise _wrong(fields, "mime_type", 'a text such as "application/jsonl"')
    return Asked(size, clean_name(name))


def read_completion(body: Any) -> Wish:
    """Raises Refused, with the field at fault."""
    fields = _object(body, COMPLETION)
    ids, md5 = fields.get("part_ids"), fields.get("md5")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MOST_UPLOAD_PARTS:
        raise _wrong(fields, "part_ids", f"a list of 1 to {MOST_UPLOAD_PARTS} ids of parts, in their order")
    seen = set[str]()
    for at, part_id in enumerate(ids):
        if not isinstance(part_id, str) or part_id in seen:
            raise _wrong(fields, f"part_ids[{at}]", "the id of a part, which is named once")
        seen.add(part_id)
    if md5 is not None and not (isinstance(md5, str) and _MD5.fullmatch(md5)):
        raise _wrong(fields, "md5", "an MD5 in 32 hexadecimal digits")
    return Wish(tuple(ids), (md5 or "").lower())


def _object(body: Any, known: tuple[str, ...]) -> Json:
    if not isinstance(body, dict):
        raise Refused(f"The body must be a JSON object with {', '.join(known)}.", code="invalid_json")
    unknown = [str(name)[:100] for name in body if name not in known]
    if unknown:
        told = f"Unknown parameter: {unknown[0]!r}. Those here are {', '.join(known)}."
        raise Refused(told, param=unknown[0], code="unknown_parameter")
    return body


def _wrong(fields: Json, name: str, what: str) -> Refused:
    if fields.get(name) is None and "[" not in name:
        return Refused(f"{name} is missing: it is {what}.", param=name, code="missing_required_parameter")
    return Refused(f"{name} must be {what}.", param=name)


def check_md5(wish: Wish, found: str) -> None:
    """Raises Refused."""
    if wish.md5 and wish.md5 != found:
        raise Refused(f"The file's MD5 is {found}, not {wish.md5}. Its parts are kept.", param="md5")


def upload_object(upload: Upload, file: Json | None = None) -> Json:
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.bytes,
        "created_at": upload.created_at,
        "expires_at": upload.expires_at,
        "filename": upload.filename,
        "purpose": INPUT,
        "status": upload.status,
        "file": file,
    }


def part_object(part: Part, upload_id: str, created_at: int) -> Json:
    return {"id": part.id, "object": "upload.part", "created_at": created_at, "upload_id": upload_id}
