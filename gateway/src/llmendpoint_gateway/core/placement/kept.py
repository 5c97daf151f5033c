"""Which large bodies Envoy keeps until their answers end, so that a second replica can be tried."""


class Kept:
    """`small`: bytes of a body that is kept in any case; `largest`: of one that may be; `most`: of all of them together.
    `total`: bytes of the bodies that are kept now. Those of one caller take at most what was free when it
    sent the last one."""

    def __init__(self, small: int, largest: int, most: int) -> None:
        self._small, self._largest, self._most = small, largest, most
        self.total = 0
        self._of: dict[int, int] = {}  # by caller

    def take(self, size: int, caller: int = 0) -> int:
        """The bytes to give back at the request's end; 0 when the body is not kept, or so small that every such body is."""
        if not self._small < size <= self._largest:
            return 0
        held = self._of.get(caller, 0) + size
        if held > self._most - self.total:
            return 0
        self.total += size
        self._of[caller] = held
        return size

    def give_back(self, size: int, caller: int = 0) -> None:
        """What `take` returned."""
        if not size:
            return
        self.total -= size
        self._of[caller] -= size
        if not self._of[caller]:
            del self._of[caller]
