"""The priorities that a request may ask for."""

from enum import IntEnum


class Priority(IntEnum):
    """Of one caller's requests for one endpoint the highest priority is served first. It has no effect on other
    callers."""

    HIGH = 0
    NORMAL = 1
    LOW = 2
