"""Whether the gateway can reach the API server. The time is an argument, in seconds."""

from enum import Enum


class Reach:
    """Since when each kind's watch is broken. The API server counts as unreachable while any watch is broken."""

    def __init__(self) -> None:
        self._lost: dict[Enum, float] = {}

    def lost(self, kind: Enum, now: float) -> float:
        """Mark this watch as broken. Returns for how many seconds it has been broken."""
        return now - self._lost.setdefault(kind, now)

    def found(self, kind: Enum) -> None:
        """Mark this watch as working."""
        self._lost.pop(kind, None)

    @property
    def stale(self) -> bool:
        """Whether the last state from the API server may be outdated."""
        return bool(self._lost)

    def seconds(self, now: float) -> float:
        """For how many seconds the API server has been unreachable; 0 while it is reachable."""
        return max((now - since for since in self._lost.values()), default=0.0)
