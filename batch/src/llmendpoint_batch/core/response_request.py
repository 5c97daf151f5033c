"""The body of `POST /v1/responses`: what the service itself reads of it. All other fields are the engine's matter, and
pass through as the bytes that the caller sent."""

from dataclasses import dataclass
from typing import Any

import msgspec

from llmendpoint_batch.core.bounds import LONGEST_ID, MOST_ITEMS
from llmendpoint_batch.core.creation import read_metadata
from llmendpoint_batch.errors import Refused

Fields = dict[str, msgspec.Raw]
PRIORITIES = ("high", "normal", "low")
NULL = msgspec.Raw(b"null")
OWN_FIELDS = ("previous_response_id", "background", "store")
_FIELDS, _ITEMS = msgspec.json.Decoder(Fields), msgspec.json.Decoder(list[msgspec.Raw])
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Asked:
    """`fields`: the whole body. `input`: None is a text, which `fields` has; otherwise its items."""

    fields: Fields
    model: str
    input: list[msgspec.Raw] | None
    previous: str | None
    store: bool
    background: bool
    stream: bool

    def let_go(self) -> None:
        """Its bytes are needed no more: they are in what was made of them."""
        self.fields.clear()
        if self.input is not None:
            self.input.clear()


def read_asked(text: bytes) -> Asked:
    """Raises Refused, with the field at fault."""
    fields = _decoded(text)
    model = _value(fields, "model")
    if not isinstance(model, str) or not model or "\0" in model:
        raise _wrong("model", "the name of an endpoint, a text", "model" not in fields)
    previous = _value(fields, "previous_response_id")
    if previous is not None and not (
        isinstance(previous, str) and 0 < len(previous) <= LONGEST_ID and "\0" not in previous
    ):
        raise _wrong("previous_response_id", "the id of a stored response, a text")
    store, background, stream = (_flag(fields, name) for name in ("store", "background", "stream"))
    store = store is not False
    if background and not store:
        raise Refused(
            "background needs store: its answer is read later. Leave store out.", param="background"
        )
    read_metadata(_value(fields, "metadata"))
    return Asked(fields, model, _input(fields), previous, store, bool(background), bool(stream))


def _decoded(text: bytes) -> Fields:
    try:
        text.decode()  # the decoder does not look at every byte of what it passes on
        return _FIELDS.decode(text)
    except _NO_JSON as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise Refused(f"The body is not a JSON object: {told}.", code="invalid_json") from None


def _value(fields: Fields, name: str) -> Any:
    return msgspec.json.decode(fields.get(name, NULL))


def _wrong(name: str, what: str, missing: bool = False) -> Refused:
    if missing:
        return Refused(f"{name} is missing: it is {what}.", param=name, code="missing_required_parameter")
    return Refused(f"{name} must be {what}.", param=name, code="invalid_type")


def _flag(fields: Fields, name: str) -> bool | None:
    value = _value(fields, name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def _input(fields: Fields) -> list[msgspec.Raw] | None:
    raw = bytes(fields.get("input", NULL))
    what = f"a text, or a list of at least 1 and at most {MOST_ITEMS} items, each an object"
    if raw[:1] == b'"':
        return None
    if raw[:1] != b"[":
        raise _wrong("input", what, raw == b"null")
    items = _ITEMS.decode(raw)
    if not 1 <= len(items) <= MOST_ITEMS:
        raise _wrong("input", what)
    for at, item in enumerate(items):
        if bytes(item)[:1] != b"{":
            raise _wrong(f"input[{at}]", "an object")
    return items


def upstream_body(fields: Fields, before: list[msgspec.Raw], own: list[msgspec.Raw]) -> bytes:
    """What the endpoint gets: the whole conversation, and nothing of a store. Without items before, `input` is as the caller
    sent it."""
    changed: dict[str, Any] = {name: value for name, value in fields.items() if name not in OWN_FIELDS}
    if before or "input" not in fields:
        changed["input"] = [*before, *own]
    return msgspec.json.encode(changed | {"store": False})


def kept_fields(asked: Asked) -> bytes:
    """The body without its input, which is kept as items."""
    return msgspec.json.encode({name: value for name, value in asked.fields.items() if name != "input"})


def read_fields(kept: bytes) -> Fields:
    return _FIELDS.decode(kept)


def is_stream(fields: Fields) -> bool:
    return bytes(fields.get("stream", NULL)) == b"true"


def read_priority(value: str | None) -> str:
    """The header's word; empty if there is none. Raises Refused."""
    if value is not None and value not in PRIORITIES:
        told = f"The header x-llmendpoint-priority must be {', '.join(PRIORITIES)}; got {value[:100]!r}."
        raise Refused(told, param="x-llmendpoint-priority")
    return value or ""
