"""Stored responses as they are kept, and as callers see them."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from llmendpoint_batch.core.outcomes import Broken, Reply
from llmendpoint_batch.core.response_request import Fields, read_fields


class State(StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (State.QUEUED, State.IN_PROGRESS)
CONTINUED = (State.COMPLETED, State.INCOMPLETE)
"""The states of a response that another may continue."""
DEFAULTS: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None, "truncation": "disabled",
    "reasoning": {"effort": None, "summary": None}, "user": None,
}  # fmt: skip
"""What a response repeats of its request, before an engine has said it."""
_INDEX = re.compile(r"\binput\[(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class Stored:
    """`fields`: the request without its input. `before`: the items of the responses before this one, together with their
    answers. `answer`: the whole object; None until the end."""

    id: str
    state: State
    model: str
    created_at: int
    background: bool
    priority: str
    previous: str | None
    fields: bytes
    items: bytes
    answer: bytes | None = None


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a response. `output_items`, `output_bytes`: of its answer, for those that continue it."""

    state: State
    answer: bytes
    output_items: int = 0
    output_bytes: int = 0


class _Answer(msgspec.Struct):
    status: Any = None
    output: list[msgspec.Raw] = msgspec.field(default_factory=list)


_ANSWER, _FIELDS = msgspec.json.Decoder(_Answer), msgspec.json.Decoder(Fields)


def shown_response(stored: Stored) -> bytes:
    return stored.answer if stored.answer is not None else _without_answer(stored, stored.state)


def _without_answer(stored: Stored, state: State, error: dict[str, Any] | None = None) -> bytes:
    fields = read_fields(stored.fields)
    given = {name: value for name, value in fields.items() if bytes(value) != b"null"}
    repeated = {name: given.get(name, value) for name, value in DEFAULTS.items()}
    return msgspec.json.encode(
        {
            "object": "response",
            "model": stored.model,
            "completed_at": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            **repeated,
            **_own(stored),
            "status": str(state),
            "error": error,
        }
    )


def _own(stored: Stored) -> dict[str, Any]:
    """What the service knows and no engine does."""
    return {
        "id": stored.id,
        "created_at": stored.created_at,
        "background": stored.background,
        "store": True,
        "previous_response_id": stored.previous,
    }


def ours(stored: Stored, response: bytes) -> bytes:
    """An engine's response object, as this service's."""
    return msgspec.json.encode({**_FIELDS.decode(response), **_own(stored)})


def final_of(stored: Stored, response: bytes) -> Final | None:
    """None: it is no response object, or not at its end."""
    try:
        response.decode()
        answer = _ANSWER.decode(response)
        state = State(answer.status)
        if state in OPEN:
            return None
        size = sum(len(bytes(item)) for item in answer.output)
        return Final(state, ours(stored, response), len(answer.output), size)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def output_of(answer: bytes) -> list[msgspec.Raw]:
    """The items of a stored answer."""
    return _ANSWER.decode(answer).output


def failed(stored: Stored, message: str, code: str = "server_error") -> Final:
    return Final(State.FAILED, _without_answer(stored, State.FAILED, {"code": code, "message": message}))


def cancelled(stored: Stored) -> Final:
    return Final(State.CANCELLED, _without_answer(stored, State.CANCELLED))


class _Error(msgspec.Struct):
    message: Any = None


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


def failed_by(stored: Stored, result: Reply | Broken) -> Final:
    """The end by an answer that is no response. The codes are those that OpenAI's SDK knows."""
    if isinstance(result, Broken):
        return failed(stored, result.message)
    message = ""
    try:
        message = str(msgspec.json.decode(result.body, type=_ErrorBody).error.message or "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    code = "invalid_prompt" if 400 <= result.status < 500 else "server_error"
    return failed(stored, message[:2000] or f"The endpoint answered with status {result.status}.", code)


def without_earlier_items(body: bytes, before: int) -> bytes:
    """An error that names `input[N]`, counted as the caller counts: `before` items were put before the caller's."""
    if not before:
        return body

    def counted(found: re.Match[str]) -> str:
        at = int(found[1]) - before
        return f"input[{at}]" if at >= 0 else "an item of previous_response_id"

    return _INDEX.sub(counted, body.decode(errors="replace")).encode()
