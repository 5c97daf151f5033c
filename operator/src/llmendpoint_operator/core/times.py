"""Times in the format of the API server and the status."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: object) -> datetime | None:
    """An RFC 3339 time in UTC. None if the text is no time, has no zone, or is out of range in UTC."""
    try:
        found = datetime.fromisoformat(str(text)) if text else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def time_text(time: datetime | None) -> str | None:
    """RFC 3339 in UTC, with milliseconds."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
