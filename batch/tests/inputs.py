"""Input files of batches."""

import json
from collections.abc import Iterable
from typing import Any


def line(custom_id: str, /, prompt: str | None = None, model: str = "default/chat", **changed: Any) -> str:
    body = {"model": model, "prompt": custom_id if prompt is None else prompt}
    given = {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}
    return json.dumps(given | changed)


def lines(ids: Iterable[str], model: str = "default/chat") -> bytes:
    return "".join(line(custom_id, model=model) + "\n" for custom_id in ids).encode()
