"""What a request claims in a queue."""

from dataclasses import dataclass
from enum import IntEnum


class Priority(IntEnum):
    """Of one caller's requests for one endpoint the highest priority is served first. It has no effect on other
    callers."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """`size`: bytes of the request's body. `caller`: as in core/identity/caller.py."""

    size: int = 0
    caller: int = 0
    priority: Priority = Priority.NORMAL
