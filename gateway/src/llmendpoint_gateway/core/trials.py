"""What the breakers of replicas and of endpoints have in common: left alone for a time, then tried by single requests.

| standing | requests |
|---|---|
| closed | all |
| open | none, until its time is over |
| half-open | one at a time, which is a trial; one more each time that nothing is known of the last for 10 seconds |

A trial that is no stream is known of when its answer is complete, which may take an hour: until then it holds up nobody
for more than those seconds. Time is the caller's, in seconds.
"""

from dataclasses import dataclass
from enum import Enum

REPORT_SECONDS = 1.0
"""How long after a trial's end Envoy may take to report it."""
QUIET_SECONDS = 10.0
"""So long after a trial began, and nothing is known of it, another may begin."""
MOST_TRIALS = 4
"""That are under way together."""
BARRED_SECONDS = 10.0
"""For so long a caller whose trial failed, or is not known of, leaves the next one to others: its requests may fail, or
take long, for what they hold."""


class Standing(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Trials:
    """`until`: when an open one becomes half-open. `trials` are under way, and `next_at` another may begin; by
    `reported_by` the outcome of the last that ended is known, or never will be. `barred`: the caller of the last trial,
    unless that was answered; until `barred_until` it is kept away, but only once the breaker is `contested`, as another
    caller uses the endpoint. `sole`: the one caller whose failures alone opened it, and keep it
    open; None: several did, or it was no caller's fault."""

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
        """Half-open, with no trial under way of which something may be known soon, and not kept for other callers than
        this one."""
        if not self.tripped or now < max(self.until, self.reported_by):
            return False
        if self.trials and (self.trials >= MOST_TRIALS or now < self.next_at):
            return False
        return caller is None or caller != self.barred or not self.contested or now >= self.barred_until

    def trip(self, until: float, sole: int | None = None) -> None:
        self.tripped, self.until, self.sole = True, until, sole

    def trial_failed(self, until: float, caller: int | None, others: bool) -> None:
        """`caller` None: it is no caller's fault. `others`: callers beside it use the endpoint."""
        self.barred, self.barred_until, self.contested = caller, until + BARRED_SECONDS, others
        self.trip(until, caller if caller == self.sole else None)

    def asked(self, caller: int) -> bool:
        """This caller asks now; whether another one's failures alone opened the breaker, so that it is to close."""
        if caller != self.barred:
            self.contested = True
        return self.tripped and self.sole is not None and caller != self.sole

    def trial_began(self, now: float, caller: int | None) -> None:
        """`caller` None: nobody knows whose it is."""
        if self.tripped:
            self.trials += 1
            self.next_at = now + QUIET_SECONDS
            self.barred, self.barred_until, self.contested = caller, self.next_at + BARRED_SECONDS, False

    def trial_answered(self, now: float) -> None:
        """It may go on, as a stream does; another need not wait for its end."""
        self.next_at, self.barred = now, None

    def trial_ended(self, now: float) -> None:
        """However it ended; of one that began while it was closed nothing is known here."""
        if self.trials:
            self.trials -= 1
            self.reported_by = now + REPORT_SECONDS
