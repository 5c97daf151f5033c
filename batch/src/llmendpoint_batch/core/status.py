"""The states of a batch, and what leads from one to the next.

validating ──► in_progress ──► finalizing ──► completed | expired
    │ │             │
    │ └─► failed    └─► cancelling ──► cancelled
    └──────────────────────▲
"""

from enum import StrEnum

from llmendpoint_batch.errors import IllegalMove


class Status(StrEnum):
    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class Event(StrEnum):
    ACCEPTED = "accepted"  # every line of the file is good
    REJECTED = "rejected"
    ANSWERED = "answered"  # no line waits any more
    RAN_OUT = "ran_out"  # the completion window has ended; what waits fails
    CANCEL = "cancel"  # what waits fails
    WRITTEN = "written"  # the output files are there
    WRITTEN_LATE = "written_late"  # the same, of a batch whose window had ended


MOVES: dict[tuple[Status, Event], Status] = {
    (Status.VALIDATING, Event.ACCEPTED): Status.IN_PROGRESS,
    (Status.VALIDATING, Event.REJECTED): Status.FAILED,
    (Status.VALIDATING, Event.CANCEL): Status.CANCELLING,
    (Status.IN_PROGRESS, Event.ANSWERED): Status.FINALIZING,
    (Status.IN_PROGRESS, Event.RAN_OUT): Status.FINALIZING,
    (Status.IN_PROGRESS, Event.CANCEL): Status.CANCELLING,
    (Status.FINALIZING, Event.WRITTEN): Status.COMPLETED,
    (Status.FINALIZING, Event.WRITTEN_LATE): Status.EXPIRED,
    (Status.CANCELLING, Event.WRITTEN): Status.CANCELLED,
}
ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.EXPIRED, Status.CANCELLED})
WRITING = frozenset({Status.FINALIZING, Status.CANCELLING})
"""No line waits, and no answer is taken any more."""


def moved(status: Status, event: Event) -> Status:
    """The next status. Raises IllegalMove."""
    try:
        return MOVES[status, event]
    except KeyError:
        raise IllegalMove(f"a batch that is {status} cannot be {event}") from None


def may(status: Status, event: Event) -> bool:
    return (status, event) in MOVES
