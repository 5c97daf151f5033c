"""Times as the API server and the status write them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: object) -> datetime | None:
    """RFC 3339, in UTC; None of what is no time, has no zone, or has no UTC."""
    try:
        found = datetime.fromisoformat(str(text)) if text else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def time_text(time: datetime | None) -> str | None:
    """RFC 3339 with milliseconds, UTC."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
