"""Requests and errors of an endpoint by second and group of callers, in memory that does not grow with the number of
callers.

The time is an argument, in seconds.
"""

from dataclasses import dataclass, field

LONGEST_WINDOW = 300  # seconds
GROUPS = 16
"""Callers are divided into groups by four bits of their number."""
NOBODY = -1
"""The group of failures that are no caller's fault."""

Counts = dict[int, list[int]]
"""Group -> [requests, errors]."""


@dataclass(slots=True)
class Window:
    """`shift`: how many low bits of a caller's number are skipped; the next four are its group."""

    slots: dict[int, Counts] = field(default_factory=dict)
    shift: int = 0

    def group(self, caller: int | None) -> int:
        return NOBODY if caller is None else caller >> self.shift & GROUPS - 1

    def add(self, index: int, now: float, caller: int | None) -> None:
        """`index` 0: a request; 1: an error."""
        second, group = int(now), self.group(caller)
        slot = self.slots.get(second)
        if slot is None:
            while self.slots and (oldest := next(iter(self.slots))) <= second - LONGEST_WINDOW:
                del self.slots[oldest]
            slot = self.slots[second] = {}
        counts = slot.get(group)
        if counts is None:
            counts = slot[group] = [0, 0]
        counts[index] += 1

    def part(self, one: int, other: int) -> None:
        """Choose the bits that put these two callers into two groups. The counts so far are dropped."""
        differ = one ^ other
        self.shift = (differ & -differ).bit_length() - 1
        self.slots = {}

    def counts(self, now: float, seconds: float) -> Counts:
        found: Counts = {}
        for second, slot in self.slots.items():
            if second > now - seconds - 1:
                for group, (requests, errors) in slot.items():
                    counts = found.setdefault(group, [0, 0])
                    counts[0] += requests
                    counts[1] += errors
        return found

    def sums(self, now: float, seconds: float) -> tuple[int, int]:
        return sums(self.counts(now, seconds))


def sums(counts: Counts) -> tuple[int, int]:
    """(requests, errors). Envoy reports an error shortly before or after its request ends, so requests are at least the
    errors."""
    requests, errors = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
    return max(requests, errors), errors
