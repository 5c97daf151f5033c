"""What the breakers of replicas and of endpoints share: no requests for a time, then single trial requests.

| standing | requests |
|---|---|
| closed | all |
| open | none, until its time is over |
| half-open | one trial at a time; one more after each 10 seconds in which the last has no outcome |

The outcome of a trial without a stream is known when its answer is complete, which may take an hour. It delays the next
trial by these 10 seconds at most. The time is an argument, in seconds.
"""

from dataclasses import dataclass
from enum import Enum

REPORT_SECONDS = 1.0
"""How long after a trial's end Envoy may take to report it."""
QUIET_SECONDS = 10.0
"""How long after a trial without an outcome another may begin."""
MOST_TRIALS = 4
"""Concurrent trials at most."""
BARRED_SECONDS = 10.0
"""How long a caller whose trial failed, or has no outcome yet, leaves the next one to others: its requests themselves
may be why they fail or take long."""


class Standing(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Trials:
    """`until`: when an open breaker becomes half-open. `trials`: how many are in progress. `next_at`: when another may
    begin. `reported_by`: when the outcome of the last ended trial is known, or never will be.

    `barred`: the caller of the last trial, unless that was answered. It gets no other trial until `barred_until` if the
    breaker is `contested`, which means that another caller uses the endpoint. `sole`: the only caller whose failures
    opened the breaker and keep it open; None if there were several, or if no caller is at fault.
    """

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
        """Whether a request of this caller would be a trial now: the breaker is half-open, no outcome is due soon, and
        the next trial is not reserved for other callers."""
        if not self.tripped or now < max(self.until, self.reported_by):
            return False
        if self.trials and (self.trials >= MOST_TRIALS or now < self.next_at):
            return False
        return caller is None or caller != self.barred or not self.contested or now >= self.barred_until

    def trip(self, until: float, sole: int | None = None) -> None:
        self.tripped, self.until, self.sole = True, until, sole

    def trial_failed(self, until: float, caller: int | None, others: bool) -> None:
        """`caller` None: no caller is at fault. `others`: other callers use the endpoint too."""
        self.barred, self.barred_until, self.contested = caller, until + BARRED_SECONDS, others
        self.trip(until, caller if caller == self.sole else None)

    def asked(self, caller: int) -> bool:
        """This caller sends a request. Returns whether the breaker must close, because only another caller's failures
        opened it."""
        if caller != self.barred:
            self.contested = True
        return self.tripped and self.sole is not None and caller != self.sole

    def trial_began(self, now: float, caller: int | None) -> None:
        """`caller` None: the caller is not known."""
        if self.tripped:
            self.trials += 1
            self.next_at = now + QUIET_SECONDS
            self.barred, self.barred_until, self.contested = caller, self.next_at + BARRED_SECONDS, False

    def trial_answered(self, now: float) -> None:
        """The answer has begun. A stream may go on; the next trial does not wait for its end."""
        self.next_at, self.barred = now, None

    def trial_ended(self, now: float) -> None:
        """The trial is over, however it ended. No effect for a trial that began while the breaker was closed."""
        if self.trials:
            self.trials -= 1
            self.reported_by = now + REPORT_SECONDS
