"""Which large bodies Envoy keeps until their answers end, so that a retry can send them to a second replica."""


class Kept:
    """Sizes in bytes. `small`: a body up to this size is always kept. `largest`: the largest body that may be kept.
    `most`: the sum of all kept bodies above `small`. `total`: that sum now. The bodies of one caller may take at most
    what was free when it sent the last one."""

    def __init__(self, small: int, largest: int, most: int) -> None:
        self._small, self._largest, self._most = small, largest, most
        self.total = 0
        self._of: dict[int, int] = {}  # caller -> bytes

    def take(self, size: int, caller: int = 0) -> int:
        """Returns the bytes to give back at the request's end; 0 if the body is not kept, or is so small that it is
        always kept."""
        if not self._small < size <= self._largest:
            return 0
        held = self._of.get(caller, 0) + size
        if held > self._most - self.total:
            return 0
        self.total += size
        self._of[caller] = held
        return size

    def give_back(self, size: int, caller: int = 0) -> None:
        """`size`: what `take` returned."""
        if not size:
            return
        self.total -= size
        self._of[caller] -= size
        if not self._of[caller]:
            del self._of[caller]
