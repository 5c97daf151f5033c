"""Times as the API server and the status write them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: object) -> datetime | None:
    """RFC 3339 as the status holds it; None of what is no time, or one that has no UTC."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return None
