"""Which large bodies Envoy keeps until their answers end, so that a second replica can be tried."""

from llmendpoint_gateway.core import bounds


class Kept:
    """`total`: bytes of those that are kept now."""

    def __init__(self) -> None:
        self.total = 0

    def take(self, size: int) -> int:
        """The bytes to give back at the request's end; 0 where the body is not kept, or is small and always is."""
        fits = bounds.SMALL_BODY_BYTES < size <= bounds.KEPT_BODY_BYTES
        if not fits or self.total + size > bounds.KEPT_BYTES:
            return 0
        self.total += size
        return size

    def give_back(self, size: int) -> None:
        """What `take` returned."""
        self.total -= size
