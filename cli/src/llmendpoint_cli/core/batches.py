"""What `kubectl llm batch` sends and shows. Batches are plain JSON, in OpenAI's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

SERVICE = "llmendpoint-batch"
SELECTOR = f"app.kubernetes.io/name={SERVICE}"
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
MOST_SHOWN = 5


def form_around(filename: str, boundary: str) -> tuple[bytes, bytes]:
    """What comes before and after a file's bytes in the form of an upload. `boundary`: what the file does not hold."""
    name = re.sub(r'[^ -~]|["\\]', "_", filename)
    begin = f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    head = f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return (begin + head).encode(), f"\r\n--{boundary}--\r\n".encode()


def url_of(first_line: bytes) -> str | None:
    """The `url` of a batch's first line, which is that of all its lines; None if it has none."""
    try:
        url = json.loads(first_line)["url"]
    except (ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


def describe(batch: Json) -> Iterator[str]:
    """Lines of text."""
    counts = batch.get("request_counts") or {}
    total, good, bad = (int(counts.get(name) or 0) for name in ("total", "completed", "failed"))
    yield f"{batch['id']}: {batch['status']}, {good + bad} of {total} lines answered, {bad} of them failed"
    faults = ((batch.get("errors") or {}).get("data")) or []
    for fault in faults[:MOST_SHOWN]:
        where = f"line {fault['line']}: " if fault.get("line") else ""
        yield f"  {where}{fault.get('message')}"
    if len(faults) > MOST_SHOWN:
        yield f"  and {len(faults) - MOST_SHOWN} more"


def failure(batch: Json) -> str | None:
    """Why a batch that has ended did not complete; None if it did."""
    if batch["status"] == "completed" or batch["status"] not in ENDED:
        return None
    return "\n".join(describe(batch))
