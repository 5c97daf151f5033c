"""Which replicas are left out of the pick because requests to them fail, and when they are tried again.

A connection that nobody takes is the replica's fault. An error, a connection that breaks or an answer that does not begin
may be the request's fault, so these eject a replica only if they came from two callers and had two bodies at least.
Those of one caller alone count where no other caller has used the endpoint for 30 seconds: one caller whose requests
always fail, whatever they hold, takes no replica from the others, nor does one body, whoever sends it; and a single
application that is the only caller still gets rid of a broken replica. A replica that was ejected for the failures of one
caller alone returns as soon as another caller asks. A caller is an address (core/identity/caller.py): one with several addresses
counts as several.

Only failures and trials are reported, so that a good request costs one count. Time is the caller's, in seconds.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from llmendpoint_gateway.core.outcome.attempt import NO_TAG, Outcome
from llmendpoint_gateway.core.placement.trials import Standing, Trials
from llmendpoint_gateway.core.request.request import Tag

# A connection that fails once may be a pod that is about to leave, or a lost packet: out until the EndpointSlice has
# had time to say so, then one trial.
FIRST_SECONDS = 3.0
EJECTION_SECONDS = 30.0  # times the ejections in a row
LONGEST_SECONDS = 300.0
FORGIVEN_SECONDS = 300.0  # closed for so long: the next ejection is a first one again
# No other caller for so long: what one caller's requests end with is all there is to judge by. It is short, because with a
# longer one a probe every few minutes would keep a failing replica from being ejected for the application beside it.
ALONE_SECONDS = 30.0
# Answers that are errors eject when this many of that many requests in a row ended so. One more than the failures, as
# Envoy reports them a moment after the requests end; no more, for a revision that fails one request in ten is for the
# rollout's analysis to judge.
FAILURES, AMONG = 5, 6
# Answers that did not begin in time eject when two of three requests in a row ended so: one may be a long generation
# without a stream.
TIMEOUTS, AMONG_TIMEOUTS = 2, 3
# Attempts in a row that found nobody there, after which a replica counts as lost: with all of a revision's lost, another
# may take over. Not after one, which may be a packet.
MISSES = 3
CAUSES = (Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class _Failure:
    """`ended`: how many requests had ended at the replica."""

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
    """By address. `ejections` counts them by what caused them."""

    def __init__(self) -> None:
        self._ended: dict[str, int] = {}
        self._replicas: dict[str, _Replica] = {}
        self._ejected: set[str] = set()
        self.ejections: dict[Outcome, int] = dict.fromkeys(CAUSES, 0)

    @property
    def ejected(self) -> Collection[str]:
        """Every replica that is not closed."""
        return self._ejected

    def standing(self, address: str, now: float) -> Standing:
        return self._replicas[address].standing(now) if address in self._ejected else Standing.CLOSED

    def ejections_of(self, address: str) -> int:
        """In a row."""
        replica = self._replicas.get(address)
        return replica.ejections if replica else 0

    def lost(self, address: str, now: float, caller: int | None = None) -> bool:
        """Nobody is there: only trials are worth a request."""
        if address not in self._ejected:
            return False
        return self._replicas[address].misses >= MISSES and not self.wants_trial(address, now, caller)

    def hopeless(self, address: str) -> bool:
        """Ejected for more than one lost packet: requests would only fail there."""
        if address not in self._ejected:
            return False
        replica = self._replicas[address]
        return replica.misses >= MISSES or replica.ejections > 0

    def wants_trial(self, address: str, now: float, caller: int | None = None) -> bool:
        """Whether a request of this caller would be a trial now: the replica is half-open, and no other trial holds it up."""
        return address in self._ejected and self._replicas[address].wants_trial(now, caller)

    def asked(self, addresses: Iterable[str], now: float, caller: int) -> bool:
        """A caller asks for what these replicas serve. Those that another caller's failures alone had ejected return; whether
        there were any."""
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
        """What came of an attempt; the new standing when this changed it. `others`: callers beside the request's own use
        the endpoint, too."""
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
            return None  # it began before the ejection
        replica.reported_by = now
        if outcome is Outcome.ANSWERED:
            return self._close(address, replica, now)
        if replica.standing(now) is Standing.OPEN:
            return None  # all are ejected and this one was the least bad: its time runs on
        standing = self._eject(address, replica, outcome, now, replica.sole)
        replica.trial_failed(
            replica.until, None if outcome is Outcome.UNREACHABLE else tag.caller or None, others
        )
        return standing

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all others: what has been away from the pick and comes back ready starts anew. Of a replica that never failed
        only a number is kept: those of replicas that are gone are dropped when they are as many as those that are there."""
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
        """As the module says. Without a tag nothing is known of the request, and the replica is to blame."""
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
        """The trial itself may go on, as a stream does; if it is ejected again meanwhile, another one need not wait for that."""
        replica.tripped, replica.closed_at, replica.misses = False, now, 0
        replica.trials, replica.barred = 0, None
        self._ejected.discard(address)
        return Standing.CLOSED
