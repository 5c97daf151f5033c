"""Files, batches and lines as they are kept, and as callers see them (OpenAI's shapes)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from llmendpoint_batch.core.lines import Fault
from llmendpoint_batch.core.outcomes import Broken, Reply
from llmendpoint_batch.core.status import ENDED, Status

INPUT, OUTPUT = "batch", "batch_output"
"""The purposes of files."""
UNANSWERED = {
    Status.EXPIRED: ("batch_expired", "The completion window ended before this request was answered."),
    Status.CANCELLED: ("batch_cancelled", "The batch was cancelled before this request was answered."),
}
"""By the status that a batch ends with: what its lines without an answer have in the error file."""
STAMPS = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """`created_at` and `expires_at` are for reading, seconds of the wall clock; `deadline`, in the service's own time,
    says when it is deleted."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Batch:
    """`seq` counts batches. `deadline`: in the service's own time, the end of the completion window, and after its
    end of its retention. `late`: the window ended. `stamps`: status -> wall clock when it began."""

    seq: int
    id: str
    status: Status
    endpoint: str
    model: str
    input_file_id: str
    window: str
    metadata: dict[str, str] | None
    created_at: int
    expires_at: int
    deadline: float
    late: bool = False
    stamps: dict[str, int] = field(default_factory=dict)
    total: int = 0
    completed: int = 0
    failed: int = 0
    faults: tuple[Fault, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A line without an answer: where it stands in its file."""

    number: int
    custom_id: str
    offset: int
    length: int


def file_object(file: File) -> Json:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def batch_object(batch: Batch) -> Json:
    faults = [{"code": f.code, "message": f.message, "param": f.param, "line": f.line} for f in batch.faults]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": {"object": "list", "data": faults} if faults else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.window,
        "status": str(batch.status),
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at,
        "expires_at": batch.expires_at,
        **{f"{name}_at": batch.stamps.get(name) for name in STAMPS},
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": batch.metadata,
    }


def list_object(items: Sequence[Json], has_more: bool) -> Json:
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def output_file_id(batch_id: str, good: bool) -> str:
    """Made from the batch's id, so that a second writing of the same file has the same name."""
    return f"file-{batch_id.removeprefix('batch_')}-{'output' if good else 'errors'}"


def request_id(batch_id: str, number: int) -> str:
    return f"batch_req_{batch_id.removeprefix('batch_')}_{number}"


def answer_line(batch_id: str, number: int, custom_id: str, result: Reply | Broken) -> bytes:
    """A line of an output or error file, without its end. An answer that is not JSON stands in it as a text."""
    response: Json | None = None
    error: Json | None = None
    if isinstance(result, Reply):
        response = {
            "status_code": result.status,
            "request_id": result.request_id or request_id(batch_id, number),
            "body": _one_line(result.body),
        }
    else:
        error = {"code": result.code, "message": result.message}
    return _line(batch_id, number, custom_id, response, error)


def unanswered_line(batch_id: str, number: int, custom_id: str, end: Status) -> bytes:
    code, message = UNANSWERED[end]
    return _line(batch_id, number, custom_id, None, {"code": code, "message": message})


def _line(batch_id: str, number: int, custom_id: str, response: Json | None, error: Json | None) -> bytes:
    shown = {
        "id": request_id(batch_id, number),
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return msgspec.json.encode(shown)


def _one_line(body: bytes) -> msgspec.Raw | str:
    """JSON without line ends. It is parsed to its end: a broken answer must not break the whole file."""
    try:
        body.decode()
        msgspec.json.decode(body)
        return msgspec.Raw(msgspec.json.format(body, indent=-1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")


def ended(batch: Batch) -> bool:
    return batch.status in ENDED
