"""Which replicas are ejected because requests to them fail, and when they are tried again.

A failure to connect is the replica's fault. An error, a broken connection or a late answer may be the request's fault.
So these eject a replica only if they came from at least two callers and had at least two bodies. The failures of one
caller alone count if no other caller has used the endpoint for 30 seconds. So neither one caller whose requests always
fail nor one body, whoever sends it, takes a replica from the others. But a single application that is the only caller
still gets rid of a broken replica. A replica that was ejected for one caller's failures returns as soon as another
caller sends a request. A caller is an address (core/identity/caller.py): one with several addresses counts as several.

Only failures and trials are reported, so that a good request costs one count. The time is an argument, in seconds.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from llmendpoint_gateway.core.outcome.attempt import NO_TAG, Outcome
from llmendpoint_gateway.core.placement.trials import Standing, Trials
from llmendpoint_gateway.core.request.request import Tag

# One failed connection may be a pod that is about to leave, or a lost packet. The replica is ejected until the
# EndpointSlice has had time to say so; then it gets one trial.
FIRST_SECONDS = 3.0
EJECTION_SECONDS = 30.0  # multiplied by the ejections in a row
LONGEST_SECONDS = 300.0
FORGIVEN_SECONDS = 300.0  # after this time without ejection the count starts again
# If no other caller came for this time, one caller's results are all there is to judge by. The time is short: otherwise
# a probe every few minutes would keep a failing replica from being ejected for the application beside it.
ALONE_SECONDS = 30.0
# Errors eject a replica if FAILURES of AMONG requests in a row ended so. AMONG is one more, because Envoy reports
# failures shortly after the requests end. It is no larger, because a revision that fails one request in ten is left to
# the rollout's analysis.
FAILURES, AMONG = 5, 6
# Late answers eject a replica if two of three requests in a row were late. A single one may be a long generation
# without a stream.
TIMEOUTS, AMONG_TIMEOUTS = 2, 3
# Failed connections in a row after which a replica counts as lost. If all replicas of a revision are lost, another
# revision may take over. One failure is not enough: it may be a lost packet.
MISSES = 3
CAUSES = (Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class _Failure:
    """`ended`: how many requests had ended at the replica by then."""

    ended: int
    tag: Tag


@dataclass(slots=True)
class _Replica(Trials):
    failures: deque[_Failure] = field(default_factory=lambda: deque(maxlen=FAILURES))
    timeouts: deque[_Failure] = field(default_factory=lambda: deque(maxlen=TIMEOUTS))
    ejections: int = 0
    closed_at: float = 0.0
    misses: int = 0


class Breakers:
    """Breakers by address. `ejections` counts them by cause."""

    def __init__(self) -> None:
        self._ended: dict[str, int] = {}
        self._replicas: dict[str, _Replica] = {}
        self._ejected: set[str] = set()
        self.ejections: dict[Outcome, int] = dict.fromkeys(CAUSES, 0)

    @property
    def ejected(self) -> Collection[str]:
        """The replicas whose breaker is not closed."""
        return self._ejected

    def standing(self, address: str, now: float) -> Standing:
        return self._replicas[address].standing(now) if address in self._ejected else Standing.CLOSED

    def ejections_of(self, address: str) -> int:
        """The number of ejections in a row."""
        replica = self._replicas.get(address)
        return replica.ejections if replica else 0

    def lost(self, address: str, now: float, caller: int | None = None) -> bool:
        """Whether the replica takes no connections and this request would not be a trial."""
        if address not in self._ejected:
            return False
        return self._replicas[address].misses >= MISSES and not self.wants_trial(address, now, caller)

    def hopeless(self, address: str) -> bool:
        """Whether the replica is ejected for more than one lost packet: requests would only fail there."""
        if address not in self._ejected:
            return False
        replica = self._replicas[address]
        return replica.misses >= MISSES or replica.ejections > 0

    def wants_trial(self, address: str, now: float, caller: int | None = None) -> bool:
        """Whether a request of this caller would be a trial now: the replica is half-open, and no other trial blocks
        it."""
        return address in self._ejected and self._replicas[address].wants_trial(now, caller)

    def asked(self, addresses: Iterable[str], now: float, caller: int) -> bool:
        """A caller sends a request for the endpoint of these replicas. Those that were ejected only for another
        caller's failures return. Returns whether there were any."""
        blamed = [a for a in addresses if a in self._ejected and self._replicas[a].asked(caller)]
        for address in blamed:
            self._replicas[address].ejections = 0
            self._close(address, self._replicas[address], now)
        return bool(blamed)

    def trial_began(self, address: str, now: float, caller: int | None = None) -> None:
        if address in self._ejected:
            self._replicas[address].trial_began(now, caller)

    def ended(self, address: str, now: float, *, trial: bool) -> None:
        """A request that was placed on this replica is over, however it ended."""
        self._ended[address] = self._ended.get(address, 0) + 1
        replica = self._replicas.get(address)
        if trial and replica is not None:
            replica.trial_ended(now)

    def report(
        self,
        address: str,
        outcome: Outcome,
        now: float,
        *,
        trial: bool,
        over: bool = True,
        tag: Tag = NO_TAG,
        others: bool = False,
    ) -> Standing | None:
        """Record the result of an attempt. Returns the new standing if this changed it. `others`: other callers use the
        endpoint too."""
        replica = self._replicas.get(address)
        if replica is None:
            if outcome is Outcome.ANSWERED:
                return None
            replica = self._replicas[address] = _Replica()
        if outcome is Outcome.UNREACHABLE:
            replica.misses += 1
        if not replica.tripped:
            return self._count(address, replica, outcome, now, tag, others)
        if not trial or not (over or replica.trials):
            return None  # the attempt began before the ejection
        replica.reported_by = now
        if outcome is Outcome.ANSWERED:
            return self._close(address, replica, now)
        if replica.standing(now) is Standing.OPEN:
            return None  # all replicas are ejected and this was the least bad: its time runs on
        standing = self._eject(address, replica, outcome, now, replica.sole)
        replica.trial_failed(
            replica.until, None if outcome is Outcome.UNREACHABLE else tag.caller or None, others
        )
        return standing

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all other replicas: one that was away and comes back ready starts anew. Of a replica that never failed
        only a number is kept. These numbers are dropped when those of absent replicas outnumber the present ones."""
        for address in [a for a in self._replicas if a not in addresses]:
            del self._replicas[address]
            self._ejected.discard(address)
        if len(self._ended) > 2 * len(addresses):
            self._ended = {a: ended for a, ended in self._ended.items() if a in addresses}

    def _count(
        self, address: str, replica: _Replica, outcome: Outcome, now: float, tag: Tag, others: bool
    ) -> Standing | None:
        if outcome is Outcome.ANSWERED:
            return None
        if now - replica.closed_at > FORGIVEN_SECONDS:
            replica.ejections = 0
        if outcome is Outcome.UNREACHABLE:
            return self._open(address, replica, outcome, now + FIRST_SECONDS)
        timed_out = outcome is Outcome.TIMED_OUT
        found, among = (replica.timeouts, AMONG_TIMEOUTS) if timed_out else (replica.failures, AMONG)
        found.append(_Failure(self._ended.get(address, 0), tag))
        in_a_row = len(found) == found.maxlen and found[-1].ended - found[0].ended < among
        if in_a_row and self._blames_replica(found, others):
            callers = {failure.tag.caller for failure in found}
            return self._eject(
                address, replica, outcome, now, tag.caller or None if len(callers) == 1 else None
            )
        return None

    @staticmethod
    def _blames_replica(failures: Collection[_Failure], others: bool) -> bool:
        """Whether the replica is to blame, by the module's rule. It is if the requests have no tags, so that they are
        unknown."""
        callers = {failure.tag.caller for failure in failures}
        if callers == {NO_TAG.caller}:
            return True
        bodies = {failure.tag.print_ for failure in failures}
        return len(bodies) > 1 and (len(callers) > 1 or not others)

    def _eject(
        self, address: str, replica: _Replica, outcome: Outcome, now: float, sole: int | None
    ) -> Standing:
        replica.ejections += 1
        seconds = min(EJECTION_SECONDS * replica.ejections, LONGEST_SECONDS)
        return self._open(address, replica, outcome, now + seconds, sole)

    def _open(
        self, address: str, replica: _Replica, outcome: Outcome, until: float, sole: int | None = None
    ) -> Standing:
        replica.trip(until, sole)
        replica.failures.clear()
        replica.timeouts.clear()
        self._ejected.add(address)
        self.ejections[outcome] += 1
        return Standing.OPEN

    def _close(self, address: str, replica: _Replica, now: float) -> Standing:
        """The trial itself may go on, as a stream does. If the replica is ejected again meanwhile, the next trial does
        not wait for it."""
        replica.tripped, replica.closed_at, replica.misses = False, now, 0
        replica.trials, replica.barred = 0, None
        self._ejected.discard(address)
        return Standing.CLOSED
