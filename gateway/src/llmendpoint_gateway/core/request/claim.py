"""What a request asks of a queue."""

from dataclasses import dataclass
from enum import IntEnum


class Priority(IntEnum):
    """Of the requests of one caller for one endpoint the highest is served first. It never counts against other callers."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request has of a queue: the size of its body in bytes, its caller (core/identity/caller.py), and its priority."""

    size: int = 0
    caller: int = 0
    priority: Priority = Priority.NORMAL
