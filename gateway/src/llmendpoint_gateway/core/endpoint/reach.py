"""Whether the API server is in reach. Time is the caller's, in seconds."""

from llmendpoint_gateway.core.endpoint.view import Kind


class Reach:
    """Since when the watch of each kind is broken; the API server is out of reach while one is."""

    def __init__(self) -> None:
        self._lost: dict[Kind, float] = {}

    def lost(self, kind: Kind, now: float) -> float:
        """This watch is broken; for how many seconds it has been."""
        return now - self._lost.setdefault(kind, now)

    def found(self, kind: Kind) -> None:
        """This watch stands."""
        self._lost.pop(kind, None)

    @property
    def stale(self) -> bool:
        """What the API server last said may be over."""
        return bool(self._lost)

    def seconds(self, now: float) -> float:
        """For which it has been out of reach; 0 while it is not."""
        return max((now - since for since in self._lost.values()), default=0.0)
