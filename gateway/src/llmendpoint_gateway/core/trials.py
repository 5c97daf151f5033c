"""What the breakers of replicas and of endpoints have in common: left alone for a time, then tried by single requests.

| standing | requests |
|---|---|
| closed | all |
| open | none, until its time is over |
| half-open | one at a time, which is a trial |

Time is the caller's, in seconds.
"""

from dataclasses import dataclass
from enum import Enum

REPORT_SECONDS = 1.0
"""How long after a trial's end Envoy may take to report it."""
BARRED_SECONDS = 10.0
"""A caller whose trial failed leaves the next one to others for so long: its requests may fail for what they hold."""


class Standing(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Trials:
    """`until`: when an open one becomes half-open. `trials` are under way; by `reported_by` the last one's outcome is
    known, or never will be. `barred`: the caller whose trial failed last, where there are others."""

    tripped: bool = False
    until: float = 0.0
    trials: int = 0
    reported_by: float = 0.0
    barred: int | None = None

    def standing(self, now: float) -> Standing:
        if not self.tripped:
            return Standing.CLOSED
        return Standing.OPEN if now < self.until else Standing.HALF_OPEN

    def wants_trial(self, now: float, caller: int | None = None) -> bool:
        """Half-open, with no trial under way or awaiting its report, and not kept for other callers than this one."""
        if not self.tripped or self.trials or now < max(self.until, self.reported_by):
            return False
        return caller is None or caller != self.barred or now >= self.until + BARRED_SECONDS

    def trip(self, until: float) -> None:
        self.tripped, self.until = True, until

    def trial_began(self) -> None:
        if self.tripped:
            self.trials += 1

    def trial_ended(self, now: float) -> None:
        """However it ended; of one that began while it was closed nothing is known here."""
        if self.trials:
            self.trials -= 1
            self.reported_by = now + REPORT_SECONDS
