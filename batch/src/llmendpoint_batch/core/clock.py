"""The service's own time: seconds that it has run, and that it has been down.

The clock of a machine may jump: back by an hour, or to another year while it starts. What was uploaded is deleted after
days, and a batch expires after hours, so a jump must not bring either about. While the process runs, only the monotonic
clock counts. Between two runs the difference of the wall clock counts, from 0 to LONGEST_GAP.
"""

from dataclasses import dataclass

LONGEST_GAP = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Saved:
    """`age`: the service's own time, when the wall clock showed `wall`."""

    age: float
    wall: float


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run's time began: the service's own time, and the monotonic clock."""

    age: float
    monotonic: float

    def age_at(self, monotonic: float) -> float:
        return self.age + monotonic - self.monotonic


def begin(saved: Saved | None, wall: float, monotonic: float) -> Origin:
    """`saved`: by an earlier run."""
    if saved is None:
        return Origin(0.0, monotonic)
    return Origin(saved.age + min(max(0.0, wall - saved.wall), LONGEST_GAP), monotonic)
