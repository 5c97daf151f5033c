"""An endpoint's breaker: whether its replicas get requests at all.

| standing | goes to |
|---|---|
| closed | open: too many requests fail, or every replica is ejected |
| open: each request is refused at once | half-open: its time is over |
| half-open | closed: enough trials were answered; open: a trial failed |

A breaker that opened because every replica was ejected also closes as soon as one replica returns.

A failure may be the fault of the caller or of the body, so the breaker does not open for one caller or one body. The
failed requests must have at least two bodies. The error rate must be reached by all requests, and also without those of
the caller with the most errors; at least two of the remaining requests must have failed. If no other caller has sent a
request for 30 seconds, the rate of that caller alone counts. A breaker that opened in that way closes as soon as
another caller sends a request, even if that request is refused or waits. Failures to connect are no caller's fault and
always count. A caller is an address (core/identity/caller.py): one with several addresses counts as several. A caller
whose trial failed, or takes long, leaves the next trial to others for a while, so that it cannot keep the breaker open.

The time is an argument, in seconds.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum

from llmendpoint_gateway.core.endpoint.endpoint_settings import DEFAULT_CIRCUIT, CircuitSettings
from llmendpoint_gateway.core.placement.distinct import Distinct
from llmendpoint_gateway.core.placement.replica_breaker import ALONE_SECONDS
from llmendpoint_gateway.core.placement.trials import Standing, Trials
from llmendpoint_gateway.core.placement.window import NOBODY, Counts, Window, sums

TRIALS = 3
"""Successful trials in a row that close a breaker which opened at an error rate. One is enough if every replica was
ejected."""
BUSY_RETRY_AFTER = 1.0  # while another request is the trial
LEAST_OF_OTHERS = 2
"""Failures of callers other than the one with the most: a single one may be chance."""


class Cause(Enum):
    ERRORS = "errors"
    EJECTED = "ejected"


def _reached(counts: Counts, settings: CircuitSettings) -> bool:
    requests, errors = sums(counts)
    return errors >= settings.error_rate * requests


@dataclass(slots=True)
class _Circuit(Trials):
    """`good`: the tickets of the last successful trials in a row. It is a set, because Envoy reports a stream every
    second. `active`: how many requests of each caller are with a replica now. `failing` and `prints`: callers and
    bodies of the failed requests."""

    since: float = 0.0
    window: Window = field(default_factory=Window)
    callers: Distinct = field(default_factory=Distinct)
    active: dict[int, int] = field(default_factory=dict)
    failing: Distinct = field(default_factory=Distinct)
    prints: Distinct = field(default_factory=Distinct)
    cause: Cause | None = None
    settings: CircuitSettings = DEFAULT_CIRCUIT
    requests: int = 0
    errors: int = 0
    good: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class CircuitState:
    """`since`: when it last opened or closed. `requests` and `errors`: the figures at which it opened."""

    standing: Standing
    since: float
    requests: int
    errors: int


class Circuits:
    """Breakers by endpoint. `openings` counts them by cause."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._circuits: dict[str, _Circuit] = {}
        self._open: set[str] = set()
        self.openings: dict[Cause, int] = dict.fromkeys(Cause, 0)

    @property
    def open(self) -> Collection[str]:
        """The endpoints whose breaker is not closed."""
        return self._open

    def state(self, key: str, now: float) -> CircuitState:
        circuit = self._circuits.get(key)
        if circuit is None:
            return CircuitState(Standing.CLOSED, self._started, 0, 0)
        return CircuitState(circuit.standing(now), circuit.since, circuit.requests, circuit.errors)

    def cause(self, key: str) -> Cause | None:
        circuit = self._circuits.get(key)
        return circuit.cause if circuit else None

    def asked(self, key: str, now: float, caller: int) -> bool:
        """A caller sends a request for the endpoint, whatever becomes of it. Returns whether this closed the breaker."""
        circuit = self._circuit(key)
        circuit.callers.add(caller, now)
        if not circuit.asked(caller):
            return False
        self.close(key, now)
        return True

    def began(self, key: str, caller: int) -> None:
        """A request of this caller is with a replica, until it has `ended`."""
        active = self._circuit(key).active
        active[caller] = active.get(caller, 0) + 1

    def ended(self, key: str, now: float, caller: int = 0) -> None:
        """A request is over, however it ended."""
        circuit = self._circuit(key)
        circuit.window.add(0, now, caller)
        circuit.callers.add(caller, now)
        left = circuit.active.pop(caller, 0) - 1
        if left > 0:
            circuit.active[caller] = left

    def failed(
        self, key: str, now: float, settings: CircuitSettings, caller: int | None = None, print_: int = 0
    ) -> bool:
        """A request failed, and its caller got the failure. Returns whether this opened the breaker. `caller` None: the
        request cannot be to blame."""
        circuit = self._circuit(key)
        circuit.window.add(1, now, caller)
        circuit.prints.add(NOBODY if caller is None else print_, now)
        if caller is not None:
            circuit.failing.add(caller, now)
        if circuit.cause is not None:
            return False  # the request began before the breaker opened
        counts = circuit.window.counts(now, settings.window)
        if sums(counts)[0] < settings.min_requests or not _reached(counts, settings):
            return False
        others = caller is not None and self.others(key, caller, now)
        if not self._blames_endpoint(circuit, counts, others, now, settings):
            self._tell_apart(circuit, counts, now, settings)
            return False
        alone = caller is not None and not others and counts.keys() == {circuit.window.group(caller)}
        self._trip(key, circuit, Cause.ERRORS, now, settings, caller if alone else None)
        return True

    def all_ejected(self, key: str, now: float, settings: CircuitSettings) -> bool:
        """Every replica is ejected, and not just for one lost packet. Returns whether this opened the breaker."""
        circuit = self._circuit(key)
        if circuit.cause is not None:
            return False
        self._trip(key, circuit, Cause.EJECTED, now, settings)
        return True

    def wait(self, key: str, now: float, caller: int | None = None) -> float:
        """Seconds for which a caller's request is refused; 0: it becomes a trial."""
        circuit = self._circuits[key]
        if now < circuit.until:
            return circuit.until - now
        return 0.0 if circuit.wants_trial(now, caller) else BUSY_RETRY_AFTER

    def trial_began(self, key: str, now: float, caller: int | None = None) -> None:
        if key in self._open:
            self._circuits[key].trial_began(now, caller)

    def trial_ended(self, key: str, now: float) -> None:
        if (circuit := self._circuits.get(key)) is not None:
            circuit.trial_ended(now)

    def tried(
        self, key: str, good: bool, now: float, caller: int | None = None, ticket: int = 0
    ) -> Standing | None:
        """Record the result of a trial. Returns the new standing if this changed it. `caller`: as in `failed`.
        `ticket`: identifies the trial."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.cause is None:
            return None
        circuit.reported_by = now
        if not good:
            circuit.good.clear()
            others = caller is not None and self.others(key, caller, now)
            circuit.trial_failed(now + circuit.settings.open_seconds, caller, others)
            return Standing.OPEN
        if ticket not in circuit.good:
            circuit.good.add(ticket)
            circuit.trial_answered(now)
        if circuit.cause is Cause.EJECTED or len(circuit.good) >= TRIALS:
            self.close(key, now)
            return Standing.CLOSED
        return None

    def close(self, key: str, now: float) -> None:
        """Close the breaker with an empty window, because earlier results say nothing of now. The endpoint's callers
        are kept."""
        self._open.discard(key)
        before = self._circuits.get(key)
        self._circuits[key] = _Circuit(since=now)
        if before is not None:
            self._circuits[key].callers, self._circuits[key].active = before.callers, before.active

    def others(self, key: str, caller: int, now: float) -> bool:
        """Whether other callers sent a request for the endpoint in the last 30 seconds, or are served now."""
        circuit = self._circuits.get(key)
        if circuit is None:
            return False
        return len(circuit.active) > (caller in circuit.active) or circuit.callers.beside(
            caller, now - ALONE_SECONDS
        )

    def forgotten(self, now: float) -> Iterable[str]:
        """Open breakers whose endpoint got no request for the length of their window, so that no trial comes."""
        return [key for key in self._open if self._over(self._circuits[key], now)]

    def forget(self, key: str) -> None:
        """Forget a deleted endpoint."""
        self._circuits.pop(key, None)
        self._open.discard(key)

    def _circuit(self, key: str) -> _Circuit:
        circuit = self._circuits.get(key)
        if circuit is None:
            circuit = self._circuits[key] = _Circuit(since=self._started)
        return circuit

    @staticmethod
    def _blames_endpoint(
        circuit: _Circuit, counts: Counts, others: bool, now: float, settings: CircuitSettings
    ) -> bool:
        """Whether the endpoint is to blame, by the module's rule, in a window in which the error rate was reached."""
        groups = [group for group in counts if group != NOBODY]
        worst = max(groups, key=lambda group: counts[group][1], default=NOBODY)
        if worst == NOBODY or not counts[worst][1]:
            return True
        if not circuit.prints.several(now - settings.window):
            return False
        rest = {group: pair for group, pair in counts.items() if group != worst}
        return sums(rest)[1] >= LEAST_OF_OTHERS and _reached(rest, settings) if rest else not others

    @staticmethod
    def _tell_apart(circuit: _Circuit, counts: Counts, now: float, settings: CircuitSettings) -> None:
        """Puts two callers with failed requests into two groups, if all failures are in one group."""
        failing = circuit.failing.last_two(now - settings.window)
        if failing is None:
            return
        groups = {group for group, (_, errors) in counts.items() if errors and group != NOBODY}
        if groups == {circuit.window.group(caller) for caller in failing} and len(groups) == 1:
            circuit.window.part(*failing)

    @staticmethod
    def _over(circuit: _Circuit, now: float) -> bool:
        return now >= max(circuit.until, circuit.reported_by) + circuit.settings.window and not circuit.trials

    def _trip(
        self,
        key: str,
        circuit: _Circuit,
        cause: Cause,
        now: float,
        settings: CircuitSettings,
        sole: int | None = None,
    ) -> None:
        circuit.requests, circuit.errors = circuit.window.sums(now, settings.window)
        circuit.cause, circuit.settings, circuit.since = cause, settings, now
        circuit.good.clear()
        circuit.trip(now + settings.open_seconds, sole)
        self._open.add(key)
        self.openings[cause] += 1
