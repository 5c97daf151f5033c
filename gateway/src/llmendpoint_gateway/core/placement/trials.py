"""What the breakers of replicas and of endpoints have in common: left alone for a time, then tried by single requests.

| standing | requests |
|---|---|
| closed | all |
| open | none, until its time is over |
| half-open | one at a time, which is a trial; one more after each 10 seconds in which the last has no outcome |

The outcome of a trial that is no stream is known when its answer is complete, which may take an hour. It delays the next
trial by these 10 seconds at most. Time is the caller's, in seconds.
"""

from dataclasses import dataclass
from enum import Enum

REPORT_SECONDS = 1.0
"""How long after a trial's end Envoy may take to report it."""
QUIET_SECONDS = 10.0
"""How long after a trial without an outcome another may begin."""
MOST_TRIALS = 4
"""Trials at one time."""
BARRED_SECONDS = 10.0
"""How long a caller whose trial failed, or has no outcome yet, leaves the next one to others: what it sends may be why its
requests fail, or take long."""


class Standing(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Trials:
    """`until`: when an open one becomes half-open. `trials`: how many are under way; `next_at`: when another may begin. By
    `reported_by` the outcome of the last that ended is known, or never will be.

    `barred`: the caller of the last trial, unless that was answered. It gets no other trial until `barred_until`, if the
    breaker is `contested`: another caller uses the endpoint. `sole`: the one caller whose failures alone opened it and keep
    it open; None when several did, or no caller is at fault."""

    tripped: bool = False
    until: float = 0.0
    trials: int = 0
    next_at: float = 0.0
    reported_by: float = 0.0
    barred: int | None = None
    barred_until: float = 0.0
    contested: bool = False
    sole: int | None = None

    def standing(self, now: float) -> Standing:
        if not self.tripped:
            return Standing.CLOSED
        return Standing.OPEN if now < self.until else Standing.HALF_OPEN

    def wants_trial(self, now: float, caller: int | None = None) -> bool:
        """Whether a request of this caller would be a trial now: it is half-open, no outcome is due soon, and the next trial is
        not reserved for other callers."""
        if not self.tripped or now < max(self.until, self.reported_by):
            return False
        if self.trials and (self.trials >= MOST_TRIALS or now < self.next_at):
            return False
        return caller is None or caller != self.barred or not self.contested or now >= self.barred_until

    def trip(self, until: float, sole: int | None = None) -> None:
        self.tripped, self.until, self.sole = True, until, sole

    def trial_failed(self, until: float, caller: int | None, others: bool) -> None:
        """`caller` None: no caller is at fault. `others`: other callers use the endpoint, too."""
        self.barred, self.barred_until, self.contested = caller, until + BARRED_SECONDS, others
        self.trip(until, caller if caller == self.sole else None)

    def asked(self, caller: int) -> bool:
        """This caller asks now. Whether the breaker is to close, because another caller's failures alone opened it."""
        if caller != self.barred:
            self.contested = True
        return self.tripped and self.sole is not None and caller != self.sole

    def trial_began(self, now: float, caller: int | None) -> None:
        """`caller` None: it is not known whose trial it is."""
        if self.tripped:
            self.trials += 1
            self.next_at = now + QUIET_SECONDS
            self.barred, self.barred_until, self.contested = caller, self.next_at + BARRED_SECONDS, False

    def trial_answered(self, now: float) -> None:
        """Its answer has begun. A stream may go on; the next trial does not wait for its end."""
        self.next_at, self.barred = now, None

    def trial_ended(self, now: float) -> None:
        """However it ended; of one that began while it was closed nothing is known here."""
        if self.trials:
            self.trials -= 1
            self.reported_by = now + REPORT_SECONDS
