"""The body of `POST /v1/batches`."""

import re
from dataclasses import dataclass
from typing import Any

from llmendpoint_batch.core.bounds import (
    LONGEST_KEY,
    LONGEST_VALUE,
    LONGEST_WINDOW,
    MOST_METADATA,
    SHORTEST_WINDOW,
)
from llmendpoint_batch.errors import Refused

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
)
FIELDS = ("input_file_id", "endpoint", "completion_window", "metadata")
UNITS = {"m": 60, "h": 3600, "d": 86400}
_WINDOW = re.compile(r"([0-9]{1,5})([mhd])")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A batch as asked for. `seconds`: the completion window's."""

    input_file_id: str
    endpoint: str
    window: str
    seconds: int
    metadata: dict[str, str] | None


def read_wanted(body: Any) -> Wanted:
    """Raises Refused, with the field at fault."""
    if not isinstance(body, dict):
        raise Refused(f"The body must be a JSON object with {', '.join(FIELDS[:3])}.", code="invalid_json")
    unknown = [str(name)[:100] for name in body if name not in FIELDS]
    if unknown:
        told = f"Unknown parameter: {unknown[0]!r}. Those of a batch are {', '.join(FIELDS)}."
        raise Refused(told, param=unknown[0], code="unknown_parameter")
    file = _text(body, "input_file_id", "the id of a file with purpose batch")
    endpoint = _text(body, "endpoint", f"one of {', '.join(ENDPOINTS)}")
    if endpoint not in ENDPOINTS:
        told = f"endpoint must be one of {', '.join(ENDPOINTS)}, got {endpoint[:100]!r}."
        raise Refused(told, param="endpoint")
    window = _text(body, "completion_window", 'a time such as "24h"')
    return Wanted(file, endpoint, window, _seconds(window), read_metadata(body.get("metadata")))


def _text(body: Json, name: str, what: str) -> str:
    value = body.get(name)
    if value is None:
        raise Refused(f"{name} is missing: it is {what}.", param=name, code="missing_required_parameter")
    if not isinstance(value, str):
        raise Refused(f"{name} must be {what}.", param=name, code="invalid_type")
    return value


def _seconds(window: str) -> int:
    found = _WINDOW.fullmatch(window)
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not SHORTEST_WINDOW <= seconds <= LONGEST_WINDOW:
        told = f'completion_window must be from "1m" to "7d", such as "24h"; got {window[:100]!r}.'
        raise Refused(told, param="completion_window")
    return seconds


def read_metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MOST_METADATA:
        told = f"metadata must be an object with at most {MOST_METADATA} entries."
        raise Refused(told, param="metadata")
    for key, text in value.items():
        if not isinstance(key, str) or len(key) > LONGEST_KEY:
            told = f"A key of metadata has more than {LONGEST_KEY} characters."
            raise Refused(told, param="metadata")
        if not isinstance(text, str) or len(text) > LONGEST_VALUE:
            told = f"metadata.{key} must be a text of at most {LONGEST_VALUE} characters."
            raise Refused(told, param=f"metadata.{key}")
    return dict(value)
