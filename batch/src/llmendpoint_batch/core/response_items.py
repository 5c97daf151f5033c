"""Items of a conversation: as callers send them, as they are kept, and as a page of them is shown."""

from typing import Any

import msgspec

from llmendpoint_batch.core.bounds import LONGEST_ID
from llmendpoint_batch.core.response_request import Asked, Fields
from llmendpoint_batch.errors import Refused

PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_FIELDS = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class _Id(msgspec.Struct):
    id: Any = None


_ID = msgspec.json.Decoder(_Id)


def kept_items(asked: Asked, response_id: str) -> list[msgspec.Raw]:
    """Each with its type and an id; a text becomes a message. The content of messages becomes a list of parts, as OpenAI's
    SDK reads it."""
    if asked.input is None:
        text = msgspec.json.encode([{"type": "input_text", "text": asked.fields["input"]}])
        items: list[Fields] = [{"role": msgspec.Raw(b'"user"'), "content": msgspec.Raw(text)}]
    else:
        items = [_FIELDS.decode(item) for item in asked.input]
    seen = set[str]()
    stem = response_id.removeprefix("resp_")
    return [msgspec.Raw(msgspec.json.encode(_kept(item, at, stem, seen))) for at, item in enumerate(items)]


def _kept(item: Fields, at: int, stem: str, seen: set[str]) -> dict[str, Any]:
    kind = _text(item, "type") or "message"
    given = _text(item, "id")
    if given is None or given in seen or not 0 < len(given) <= LONGEST_ID:
        given = f"{PREFIXES.get(kind, 'item')}_{stem}_{at}"
    seen.add(given)
    kept: dict[str, Any] = {**item, "type": kind, "id": given}
    content = bytes(item.get("content", b""))
    if kind == "message" and content[:1] == b'"':
        part = "output_text" if _text(item, "role") == "assistant" else "input_text"
        more: dict[str, Any] = {"annotations": []} if part == "output_text" else {}
        kept["content"] = [{"type": part, "text": item["content"], **more}]
    if kind == "message" and "status" not in item:
        kept["status"] = "completed"
    return kept


def _text(item: Fields, name: str) -> str | None:
    raw = item.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    value: str = msgspec.json.decode(raw, type=str)
    return value


def encode_items(items: list[msgspec.Raw]) -> bytes:
    return msgspec.json.encode(items)


def decode_items(kept: bytes) -> list[msgspec.Raw]:
    return _LIST.decode(kept) if kept else []


def page(items: list[msgspec.Raw], limit: int, ascending: bool, after: str | None) -> dict[str, Any]:
    """Raises Refused if `after` is no item."""
    ids = [_ID.decode(item).id for item in items]
    order = list(range(len(items))) if ascending else list(range(len(items) - 1, -1, -1))
    if after is not None:
        if after not in ids:
            raise Refused(f"after names no item of this response: {after[:100]!r}.", param="after")
        order = order[order.index(ids.index(after)) + 1 :]
    shown = order[:limit]
    return {
        "object": "list",
        "data": [items[at] for at in shown],
        "first_id": ids[shown[0]] if shown else None,
        "last_id": ids[shown[-1]] if shown else None,
        "has_more": len(order) > limit,
    }
