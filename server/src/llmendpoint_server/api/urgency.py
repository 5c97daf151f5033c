"""What a request's headers say about how urgent it is. Nobody proves that he may use them: the server knows no callers."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers

from llmendpoint_server import limits
from llmendpoint_server.core.request import Priority
from llmendpoint_server.errors import InvalidRequest

PRIORITY_HEADER = "x-llmendpoint-priority"
_WORDS = {priority.value: priority for priority in Priority}


@dataclass(frozen=True)
class Urgency:
    """`deadline_ms`: from the arrival of the request; None: it may wait for any time."""

    priority: Priority
    deadline_ms: int | None

    def deadline(self, arrived: float) -> float | None:
        """On the clock of `arrived`, in seconds."""
        return None if self.deadline_ms is None else arrived + self.deadline_ms / 1000


def read_urgency(headers: Headers, default_deadline_ms: int | None) -> Urgency:
    """Raises InvalidRequest, which names the header."""
    deadlines = headers.getlist(limits.DEADLINE_HEADER)
    try:
        deadline = limits.read_deadline_ms(",".join(deadlines)) if deadlines else default_deadline_ms
    except ValueError as error:
        raise InvalidRequest(
            f"The header {limits.DEADLINE_HEADER} {error}.", param=limits.DEADLINE_HEADER
        ) from None
    word = ",".join(headers.getlist(PRIORITY_HEADER)).strip().lower()
    if word and word not in _WORDS:
        raise InvalidRequest(
            f"The header {PRIORITY_HEADER} must be {', '.join(_WORDS)}.", param=PRIORITY_HEADER
        )
    return Urgency(_WORDS.get(word, Priority.NORMAL), deadline)
