"""What an upload's bytes must keep to while they come in."""

from llmendpoint_batch.core.bounds import LONGEST_NAME, Bounds
from llmendpoint_batch.core.records import INPUT
from llmendpoint_batch.errors import Refused


class Gauge:
    """Counts the bytes and lines of a file that comes in pieces. `room`: bytes that the volume may still take."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.size = self._lines = self._line = 0

    def take(self, data: bytes, room: int) -> None:
        """Raises Refused at the first byte too many."""
        bounds = self._bounds
        self.size += len(data)
        if self.size > bounds.file_bytes:
            raise Refused(
                f"The file is larger than {bounds.file_bytes} bytes.",
                param="file",
                code="file_too_large",
                status=413,
            )
        if len(data) > room:
            raise no_room(bounds.storage_bytes)
        *ended, rest = data.split(b"\n")
        longest = max((len(line) for line in ended[1:]), default=len(rest))
        first = self._line + len(ended[0] if ended else rest)
        self._line = len(rest) if ended else first
        self._lines += len(ended)
        if max(longest, first, self._line) > bounds.line_bytes:
            told = f"Line {self._lines + 1} or one before it is longer than {bounds.line_bytes} bytes."
            raise Refused(told, param="file", code="line_too_long")
        if self._lines + bool(self._line) > bounds.lines:
            told = f"The file has more than {bounds.lines} lines. Make several files of it."
            raise Refused(told, param="file", code="too_many_lines")


def no_room(storage_bytes: int) -> Refused:
    told = (
        f"All files together may have {storage_bytes} bytes, and this one is too much. Delete some "
        "(DELETE /v1/files/ID)."
    )
    return Refused(told, param="file", code="storage_quota_exceeded", status=413)


def check_purpose(purpose: str | None) -> None:
    """Raises Refused."""
    if purpose is None:
        raise Refused(
            f'purpose is missing: it is "{INPUT}".', param="purpose", code="missing_required_parameter"
        )
    if purpose != INPUT:
        raise Refused(f'purpose must be "{INPUT}", got {purpose[:100]!r}.', param="purpose")


def clean_name(name: str | None) -> str:
    """As a terminal may show it. It is no path: files are kept by their ids."""
    shown = "".join(c if c.isprintable() else "_" for c in (name or "")[:LONGEST_NAME])
    return shown or "file.jsonl"
