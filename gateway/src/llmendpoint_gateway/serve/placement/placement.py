"""Where requests go, who waits, and how the replicas do: all that changes with every request.

What there is to choose from comes from `Control`, by `follow` and `route_by`.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS, Departed
from llmendpoint_gateway.core.endpoint.endpoint_settings import DEFAULT_QUEUE, QueueSettings
from llmendpoint_gateway.core.endpoint.loads import Load, Loads
from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.reach import Reach
from llmendpoint_gateway.core.endpoint.view import Store, View, make_view
from llmendpoint_gateway.core.envoy.kept import Kept
from llmendpoint_gateway.core.outcome.poison import Poison
from llmendpoint_gateway.core.placement.endpoint_breaker import Cause, Circuits
from llmendpoint_gateway.core.placement.in_flight import InFlight
from llmendpoint_gateway.core.placement.pick import Picked, PickState, place, resolve
from llmendpoint_gateway.core.placement.replica_breaker import Breakers
from llmendpoint_gateway.core.placement.rotation import Rotation
from llmendpoint_gateway.core.placement.routing import Route, Table, cluster_name
from llmendpoint_gateway.core.placement.waiting import Admission, Waiting
from llmendpoint_gateway.core.request.claim import Claim
from llmendpoint_gateway.core.request.refusals import Rejected, poisoned, starting
from llmendpoint_gateway.core.request.request import Request, Tag

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True, eq=False)
class Placed:
    """A request that is with a replica. `address`: where it is now; a retry moves it to the next of `picked.addresses`.
    `kept`: size of its body, when that is large and Envoy keeps it for a retry; else 0."""

    picked: Picked
    tag: Tag
    address: str
    kept: int


class Placement:
    """`clock`: seconds, monotonic. `hold_seconds`: how long a request waits where its endpoint does not say. `started`:
    whether Envoy has taken a snapshot yet. `on_table` is told when requests may go elsewhere than before, `on_room` when
    one that waits for this endpoint may have room, `on_first_wait` when the first waits for it, `on_idle` when a cluster's
    last request has ended."""

    def __init__(self, clock: Callable[[], float], hold_seconds: float = 0.0, first_ticket: int = 1) -> None:
        self.now = clock
        self._zero = datetime.now(UTC) - timedelta(seconds=clock())
        self.hold_seconds = hold_seconds
        self._turn = 0
        self._tickets = count(first_ticket)
        self._placed: dict[int, Placed] = {}  # by ticket
        self._changed: set[str] = set()  # endpoints of which something may be new since it was last asked
        self._cluster_of: dict[str, str] = {}  # by address
        self.started = False
        self.on_table: Callable[[], None] = lambda: None
        self.on_room: Callable[[str], None] = lambda _: None
        self.on_first_wait: Callable[[str], None] = lambda _: None
        self.on_idle: Callable[[str], None] = lambda _: None
        self.view: View = make_view(Store())
        self.known_revisions: Mapping[str, Mapping[str, tuple[Replica, ...]]] = {}
        self.waiting: Waiting[Any] = Waiting()
        self.in_flight = InFlight()
        self.kept = Kept()
        self.breakers = Breakers()
        self.circuits = Circuits(clock())
        self.poison = Poison()
        self.departed = Departed()
        self.loads = Loads()
        self.reach = Reach()
        self._state = PickState(Table(), Rotation(), self.in_flight, self.breakers, self.circuits, self.loads)

    def follow(self, view: View) -> None:
        """This is there now; what is kept of all else is forgotten."""
        self._changed.update(self.view.endpoints, view.endpoints)
        self.departed.note(self.view.names, view.names, self.now())
        self.view, self.known_revisions = view, view.revisions()
        self._state.rotation.keep(frozenset(view.endpoints))
        self.waiting.keep(view.endpoints)
        self.circuits.keep(view.endpoints)
        self.poison.keep(view.endpoints)
        self._cluster_of = {
            r.address: cluster_name(*revision)
            for revision, replicas in view.replicas.items()
            for r in replicas
            if r.routable
        }
        self.breakers.keep(self._cluster_of.keys())
        limited = [a for a, c in self._cluster_of.items() if self.patience(endpoint_of(c)) > 0]
        self.loads.keep(self._cluster_of.keys(), self.now(), limited)

    def route_by(self, table: Table, started: bool) -> None:
        """Requests go by this table from now on, once Envoy has taken a snapshot."""
        self.started = started
        self._state = replace(self._state, table=table)
        self.on_table()

    @property
    def table(self) -> Table:
        return self._state.table

    def route(self, key: str) -> Route | None:
        """Where the requests of an endpoint go now."""
        return self.table.routes.get(key)

    # Requests

    def place(self, name: str, caller: int | None = None, print_: int = 0) -> Picked | Rejected:
        """A replica now, or why none, and whether to wait for one. `print_`: of the body, 0 for none."""
        if not self.started:
            return starting()
        now = self.now()
        key = resolve(name, self.table.names, self.departed, now)
        if isinstance(key, Rejected):
            return key
        if caller is not None:
            self._asked(key, caller, now)
        self._turn += 1
        decision = place(key, self._state, self._turn, now, self.reach.stale, caller)
        waits_or_goes = isinstance(decision, Picked) or decision.awaited
        if waits_or_goes and self.poison.refused(key, print_, now):
            return poisoned()
        return decision

    def _asked(self, key: str, caller: int, now: float) -> None:
        """A caller asks for an endpoint, whatever comes of it: breakers that another caller's failures alone have opened
        close."""
        closed = self.circuits.asked(key, now, caller)
        route = self.route(key)
        if self.breakers.ejected and route is not None:
            addresses = [address for target in route.targets for address in target.addresses]
            if self.breakers.asked(addresses, now, caller):
                closed = True
                if self.circuits.cause(key) is Cause.EJECTED:
                    self.circuits.close(key, now)
        if closed:
            self._changed.add(key)

    def take(self, picked: Picked, request: Request) -> Placed:
        """The request is with the first of the replicas, until `release`."""
        address, caller = picked.addresses[0], request.caller
        tag = request.tag(next(self._tickets))
        placed = Placed(picked, tag, address, self.kept.take(request.size, caller))
        self._placed[tag.ticket] = placed
        self.in_flight.take(picked.cluster, address)
        self.loads.touched.add(address)
        self._changed.add(picked.endpoint)
        self.circuits.began(picked.endpoint, caller)
        if picked.trial:
            now = self.now()
            self.breakers.trial_began(address, now, caller or None)
            self.circuits.trial_began(picked.endpoint, now, caller or None)
        return placed

    def moved(self, ticket: int, failed: str) -> None:
        """The attempt at this replica failed, and Envoy tries the next one: the request is there now."""
        placed = self._placed.get(ticket)
        if placed is None or placed.address != failed or placed.picked.addresses[-1] == failed:
            return  # it is over, or has no other
        picked, placed.address = placed.picked, placed.picked.addresses[-1]
        self.in_flight.take(picked.cluster, placed.address)
        self.in_flight.release(picked.cluster, failed)
        self.breakers.ended(failed, self.now(), trial=picked.trial)
        self.loads.touched.add(placed.address)
        self._changed.add(picked.endpoint)
        self._room_for(picked.endpoint)

    def release(self, placed: Placed) -> None:
        """The request has ended."""
        now, picked, caller = self.now(), placed.picked, placed.tag.caller
        del self._placed[placed.tag.ticket]
        self.kept.give_back(placed.kept, caller)
        first = placed.address == picked.addresses[0]  # which alone was a trial
        self.breakers.ended(placed.address, now, trial=picked.trial and first)
        self.circuits.ended(picked.endpoint, now, caller)
        if picked.trial:
            self.circuits.trial_ended(picked.endpoint, now)
        self._changed.add(picked.endpoint)
        if self.in_flight.release(picked.cluster, placed.address):
            self.on_idle(picked.cluster)
        self._room_for(picked.endpoint)

    def _room_for(self, endpoint: str) -> None:
        """A replica of it has a place free."""
        if self.waiting.requests and self.waiting.count(endpoint):
            self.on_room(endpoint)

    # The queue

    def queue_of(self, endpoint: str) -> QueueSettings:
        found = self.view.endpoints.get(endpoint)
        return found.queue if found else DEFAULT_QUEUE

    def patience(self, endpoint: str) -> float:
        """Seconds for which a request waits for this endpoint; 0: none does. For one that was just deleted only until it
        is clear that it does not come back."""
        if endpoint not in self.view.endpoints:
            return min(GRACE_SECONDS, self.hold_seconds)
        queue = self.queue_of(endpoint)
        if not queue.most:
            return 0.0
        return self.hold_seconds if queue.seconds is None else queue.seconds

    def longest_patience(self, endpoint: str) -> float:
        """The same, with the time after a deleted endpoint has come back."""
        seconds = self.patience(endpoint)
        return seconds if endpoint in self.view.endpoints else seconds + self.hold_seconds

    def wait(self, endpoint: str, held: T, claim: Claim) -> Admission[T]:
        """Let a request wait, where there is room for it."""
        admission = self.waiting.add(endpoint, held, claim, self.queue_of(endpoint).most)
        if admission.admitted:
            self._changed.add(endpoint)
            if self.waiting.count(endpoint) == 1:
                self.on_first_wait(endpoint)
        return admission

    def serve(self, endpoint: str, held: Hashable, seconds: float) -> None:
        """It was its turn, after so long."""
        self.waiting.serve(endpoint, held, seconds)
        self._changed.add(endpoint)

    def leave(self, endpoint: str, held: Hashable) -> None:
        """It waits no longer."""
        self.waiting.remove(endpoint, held)
        self._changed.add(endpoint)

    # The replicas' load

    def unread(self, most: int) -> list[str]:
        """Addresses of replicas that are to be asked for their load now, at most so many."""
        busy = {address for counts in self.in_flight.counts.values() for address in counts}
        for endpoint in self.waiting:
            busy.update(r.address for rs in self.known_revisions.get(endpoint, {}).values() for r in rs)
        return self.loads.due(self.now(), busy, most)

    def note_load(self, address: str, load: Load | None) -> None:
        """What a replica answered; None: nothing that is a load."""
        changed, cluster = self.loads.note(address, load, self.now()), self._cluster_of.get(address)
        if cluster is None:
            return
        endpoint = endpoint_of(cluster)
        queue = self.queue_of(endpoint)
        if load is not None and self.patience(endpoint) > 0:
            self.loads.limits[address] = queue.limit(load, self.in_flight.of(cluster, address))
        if changed:
            self._changed.add(endpoint)
        if self.waiting.count(endpoint):
            self.on_room(endpoint)

    def missed_load(self, address: str) -> None:
        """A replica did not answer in time, or not at all."""
        self.loads.missed(address, self.now())

    def expire(self) -> None:
        """What is stale by now is unknown; and time may have made room, as the end of an ejection does."""
        for address in self.loads.expire(self.now()):
            self._changed.add(endpoint_of(self._cluster_of[address]))
        for endpoint in self.waiting:
            self.on_room(endpoint)

    # For who tells of it

    def take_changed(self) -> Collection[str]:
        """Endpoints of which something may have changed since this was last called."""
        changed, self._changed = self._changed, set()
        return changed

    def changed(self, endpoint: str) -> None:
        """Something of it may have."""
        self._changed.add(endpoint)

    def time_of(self, seconds: float) -> str:
        """RFC 3339 of a moment of the clock."""
        moment = self._zero + timedelta(seconds=seconds)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def endpoint_of(cluster: str) -> str:
    return cluster.rpartition("/")[0]
