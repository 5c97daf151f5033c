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
    known, or never will be. `barred`: the caller whose trial failed last; it is kept away only once the breaker is
    `contested`, as another caller uses the endpoint. `sole`: the one caller whose failures alone opened it, and keep it
    open; None: several did, or it was no caller's fault."""

    tripped: bool = False
    until: float = 0.0
    trials: int = 0
    reported_by: float = 0.0
    barred: int | None = None
    contested: bool = False
    sole: int | None = None

    def standing(self, now: float) -> Standing:
        if not self.tripped:
            return Standing.CLOSED
        return Standing.OPEN if now < self.until else Standing.HALF_OPEN

    def wants_trial(self, now: float, caller: int | None = None) -> bool:
        """Half-open, with no trial under way or awaiting its report, and not kept for other callers than this one."""
        if not self.tripped or self.trials or now < max(self.until, self.reported_by):
            return False
        if caller is None or caller != self.barred or not self.contested:
            return True
        return now >= self.until + BARRED_SECONDS

    def trip(self, until: float, sole: int | None = None) -> None:
        self.tripped, self.until, self.sole = True, until, sole

    def trial_failed(self, until: float, caller: int | None, others: bool) -> None:
        """`caller` None: it is no caller's fault. `others`: callers beside it use the endpoint."""
        self.barred, self.contested = caller, others
        self.trip(until, caller if caller == self.sole else None)

    def asked(self, caller: int) -> bool:
        """This caller asks now; whether another one's failures alone opened the breaker, so that it is to close."""
        if caller != self.barred:
            self.contested = True
        return self.tripped and self.sole is not None and caller != self.sole

    def trial_began(self) -> None:
        if self.tripped:
            self.trials += 1

    def trial_ended(self, now: float) -> None:
        """However it ended; of one that began while it was closed nothing is known here."""
        if self.trials:
            self.trials -= 1
            self.reported_by = now + REPORT_SECONDS
