"""Whether several different values (callers or prints) were seen, in constant memory."""

from dataclasses import dataclass


@dataclass(slots=True)
class Distinct:
    """The last value and the last different one, each with the time in seconds when it was last seen."""

    last: int | None = None
    last_at: float = 0.0
    other: int | None = None
    other_at: float = 0.0

    def add(self, value: int, now: float) -> None:
        if value != self.last:
            self.other, self.other_at = self.last, self.last_at
            self.last = value
        self.last_at = now

    def last_two(self, since: float) -> tuple[int, int] | None:
        """The last two different values; None if fewer were seen since then."""
        if self.last is None or self.other is None or self.other_at < since:
            return None
        return self.last, self.other

    def several(self, since: float) -> bool:
        """Whether at least two different values were seen since then."""
        return self.last_two(since) is not None

    def beside(self, value: int, since: float) -> bool:
        """Whether a value other than `value` was seen since then."""
        if self.last is not None and self.last != value:
            return self.last_at >= since
        return self.several(since)
