"""The clocks of this process."""

import time

from llmendpoint_batch.core.clock import Saved, begin


class Times:
    """`age`: the service's own time (core/clock.py), for what is due. `wall`: for what callers read."""

    def __init__(self, saved: Saved | None) -> None:
        self._origin = begin(saved, time.time(), time.monotonic())

    def age(self) -> float:
        return self._origin.age_at(time.monotonic())

    def wall(self) -> int:
        return int(time.time())

    def to_save(self) -> Saved:
        return Saved(self.age(), time.time())
