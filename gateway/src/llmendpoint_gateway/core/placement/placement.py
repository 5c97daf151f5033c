"""Where requests go and how the replicas behave: everything that changes with each request, except the queue.

This module acts on nothing. The time is an argument, in seconds, and functions return what others must do. `follow` and
`route_by` set the replicas to choose from; settle.py handles the end of a request.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS, Departed
from llmendpoint_gateway.core.endpoint.endpoint_settings import DEFAULT_QUEUE, QueueSettings
from llmendpoint_gateway.core.endpoint.loads import Load, Loads
from llmendpoint_gateway.core.endpoint.names import Meant, split_adapter
from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.reach import Reach
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.outcome.poison import Poison
from llmendpoint_gateway.core.placement.adapters import AdapterCounts
from llmendpoint_gateway.core.placement.addresses import Addresses
from llmendpoint_gateway.core.placement.endpoint_breaker import Cause, Circuits
from llmendpoint_gateway.core.placement.in_flight import InFlight
from llmendpoint_gateway.core.placement.kept import Kept
from llmendpoint_gateway.core.placement.outstanding import NOTHING, Sent
from llmendpoint_gateway.core.placement.pick import Picked, PickState, place, resolve
from llmendpoint_gateway.core.placement.prompts import Prompts
from llmendpoint_gateway.core.placement.replica_breaker import Breakers
from llmendpoint_gateway.core.placement.rotation import Rotation
from llmendpoint_gateway.core.placement.routing import Route, Table, cluster_name
from llmendpoint_gateway.core.placement.tallies import Tallies
from llmendpoint_gateway.core.request.prompt import Prompt
from llmendpoint_gateway.core.request.refusals import Rejected, poisoned, starting, unknown_model
from llmendpoint_gateway.core.request.request import Request, Tag


@dataclass(slots=True, eq=False)
class Placed:
    """A request that is with a replica. `address`: its replica now; a retry moves it to the next of `picked.addresses`.
    `kept`: bytes of its body, if that is large and Envoy keeps it for a retry; else 0. `socket`: it is a WebSocket.
    `prompt`: None if it has none. `sent`: what it added to that replica."""

    picked: Picked
    tag: Tag
    address: str
    kept: int
    socket: bool = False
    prompt: Prompt | None = None
    sent: Sent = NOTHING


class Placement:
    """`hold_seconds`: how long a request waits if its endpoint does not say. `first_ticket`: the number of the first
    request. `started`: whether Envoy has accepted a snapshot. `placed`: requests that are with a replica, by ticket.
    `changed`: endpoints that may have news since `take_changed`."""

    def __init__(self, kept: Kept, now: float, hold_seconds: float = 0.0, first_ticket: int = 1) -> None:
        self.hold_seconds = hold_seconds
        self._turn = 0
        self._tickets = count(first_ticket)
        self.placed: dict[int, Placed] = {}
        self.changed: set[str] = set()
        self._addresses = Addresses()
        self.started = False
        self.view = View()
        self.in_flight = InFlight()
        # An open WebSocket is mostly idle. What its engine computes for it is in the engine's load, as requests of others are.
        self.sockets = InFlight()
        self.kept = kept
        self.breakers = Breakers()
        self.circuits = Circuits(now)
        self.tallies = Tallies()
        self.poison = Poison()
        self.departed = Departed()
        self.loads = Loads()
        self.reach = Reach()
        self.adapters = AdapterCounts()
        self.prompts = Prompts()
        parts = (self.in_flight, self.breakers, self.circuits, self.loads, self.prompts)
        self._state = PickState(Table(), Rotation(), *parts)

    def follow(self, view: View, keys: Collection[str], now: float) -> None:
        """Take over a new view. `keys`: the endpoints that changed. Addresses are updated first, because they need the
        old view."""
        before, concerned = self.view, self._addresses.change(self.view, view, keys)
        self.tallies.change(before, view, keys)
        self.prompts.prefixes.change(before, view, keys)
        self.view = view
        for address in concerned:
            cluster = self._addresses.cluster(address)
            if cluster is None:
                self.loads.drop(address)
                self.prompts.outstanding.drop(address)
            else:
                self.loads.put(address, now, limited=self.patience(endpoint_of(cluster)) > 0)
        self.changed.update(keys)
        if view.names is not before.names:
            self.departed.note(before.names, view.names, now)
        for key in keys:
            if key not in view.endpoints:
                self._state.rotation.forget(key)
                self.circuits.forget(key)
                self.poison.forget(key)
        self.breakers.keep(self._addresses)
        self.adapters.keep(view.endpoints, keys)

    def route_by(self, table: Table, started: bool) -> None:
        """Route requests by this table from now on, once Envoy has accepted a snapshot."""
        self.started = started
        self._state = replace(self._state, table=table)

    @property
    def table(self) -> Table:
        return self._state.table

    def route(self, key: str) -> Route | None:
        """The route of an endpoint; None if it has none."""
        return self.table.routes.get(key)

    def revisions(self, key: str) -> Mapping[str, tuple[Replica, ...]]:
        """Replicas by revision, sorted; also of a deleted endpoint."""
        return self.view.part(key).revisions

    def cluster_of(self, address: str) -> str | None:
        """The cluster of a replica in the view."""
        return self._addresses.cluster(address)

    def counted(self, key: str) -> dict[str, dict[str, dict[str, int]]]:
        """Revision -> pod -> requests and errors, of the replicas in the view."""
        return {
            revision: self.tallies.read(cluster_name(key, revision), replicas)
            for revision, replicas in self.revisions(key).items()
        }

    # Requests

    def place(
        self,
        name: str | Meant,
        now: float,
        caller: int | None = None,
        print_: int = 0,
        prompt: Prompt | None = None,
    ) -> Picked | Rejected:
        """A replica, or the reason why there is none and whether to wait. `print_`: of the body; 0: none."""
        if not self.started:
            return starting()
        names, adapter = self.table.names, ""
        if isinstance(name, Meant):
            name, adapter = name
            if names.get(name, name) != name:
                return unknown_model(name)  # the endpoint is gone, and another one claims its key as a name
        elif name not in names:
            name, adapter = split_adapter(name, lambda model: self._known(model, now))
        key = resolve(name, names, self.departed, now)
        if isinstance(key, Rejected):
            return key
        if adapter and not self._has_adapter(key, adapter):
            return unknown_model(f"{name}:{adapter}")
        if caller is not None:
            self._asked(key, caller, now)
        self._turn += 1
        decision = place(key, self._state, self._turn, now, self.reach.stale, caller, adapter, prompt)
        if adapter and isinstance(decision, Rejected):
            decision = self._of_adapter(decision, key, adapter)
        waits_or_goes = isinstance(decision, Picked) or decision.awaited
        if waits_or_goes and self.poison.refused(key, print_, now):
            return poisoned(key)
        return decision

    def _known(self, model: str, now: float) -> bool:
        return model in self.table.names or self.departed.endpoint(model, now) is not None

    def _has_adapter(self, key: str, adapter: str) -> bool:
        endpoint = self.view.endpoints.get(key)
        return endpoint is not None and adapter in endpoint.adapters

    def _of_adapter(self, decision: Rejected, key: str, adapter: str) -> Rejected:
        """A request does not wait for an adapter that no replica could load."""
        hopeless = decision.code == "adapter_not_loaded" and adapter in self.view.endpoints[key].missing
        return replace(decision, adapter=adapter, awaited=None if hopeless else decision.awaited)

    def _asked(self, key: str, caller: int, now: float) -> None:
        """A caller sends a request for an endpoint, whatever becomes of it. Breakers that opened only for another
        caller's failures close."""
        closed = self.circuits.asked(key, now, caller)
        route = self.route(key)
        if self.breakers.ejected and route is not None:
            addresses = [address for target in route.targets for address in target.addresses]
            if self.breakers.asked(addresses, now, caller):
                closed = True
                if self.circuits.cause(key) is Cause.EJECTED:
                    self.circuits.close(key, now)
        if closed:
            self.changed.add(key)

    def take(self, picked: Picked, request: Request, now: float) -> Placed:
        """The request is with the first of the replicas, until it has `Ended`."""
        address, caller = picked.addresses[0], request.caller
        tag = request.tag(next(self._tickets))
        kept = self.kept.take(request.size, caller)
        sent = self.prompts.take(request.prompt, picked.cluster, picked.adapter, address)
        placed = Placed(picked, tag, address, kept, request.socket, request.prompt, sent)
        self.placed[tag.ticket] = placed
        self.counts_of(placed).take(picked.cluster, address)
        self.loads.touched.add(address)
        self.changed.add(picked.endpoint)
        self.circuits.began(picked.endpoint, caller)
        if picked.adapter:
            self.adapters.count(picked.endpoint, picked.adapter)
        if picked.trial:
            self.breakers.trial_began(address, now, caller or None)
            self.circuits.trial_began(picked.endpoint, now, caller or None)
        return placed

    def counts_of(self, placed: Placed) -> InFlight:
        """Where it is counted."""
        return self.sockets if placed.socket else self.in_flight

    def has_any(self, cluster: str) -> bool:
        """Whether it has a request or a WebSocket."""
        return cluster in self.in_flight.counts or cluster in self.sockets.counts

    # The queue's bounds

    def queue_of(self, endpoint: str) -> QueueSettings:
        found = self.view.endpoints.get(endpoint)
        return found.queue if found else DEFAULT_QUEUE

    def patience(self, endpoint: str) -> float:
        """Seconds for which a request may wait for this endpoint; 0: none may. For a deleted endpoint: until it is
        clear that it does not come back."""
        if endpoint not in self.view.endpoints:
            return min(GRACE_SECONDS, self.hold_seconds)
        queue = self.queue_of(endpoint)
        if not queue.most:
            return 0.0
        return self.hold_seconds if queue.seconds is None else queue.seconds

    def longest_patience(self, endpoint: str) -> float:
        """Like `patience`, plus the time after a deleted endpoint has come back."""
        seconds = self.patience(endpoint)
        return seconds if endpoint in self.view.endpoints else seconds + self.hold_seconds

    # The replicas' load

    def unread(self, now: float, most: int, awaited: Iterable[str] = ()) -> list[str]:
        """Addresses of at most `most` replicas whose load is due to be read. `awaited`: endpoints with waiting
        requests."""
        taken = (*self.in_flight.counts.values(), *self.sockets.counts.values())
        busy = {address for counts in taken for address in counts}
        for endpoint in awaited:
            busy.update(r.address for rs in self.revisions(endpoint).values() for r in rs)
        due = self.loads.due(now, busy, most)
        for address in due:
            self.prompts.outstanding.ask(address)
        return due

    def note_load(self, address: str, load: Load | None, now: float) -> str | None:
        """Store a replica's answer; None: it was not a load. Returns the endpoint that may have room now."""
        changed, cluster = self.loads.note(address, load, now), self._addresses.cluster(address)
        if cluster is None:
            return None
        endpoint = endpoint_of(cluster)
        if load is not None:
            self.prompts.outstanding.note(address, load.outstanding_tokens)
        if load is not None and self.patience(endpoint) > 0:
            in_flight = self.in_flight.of(cluster, address)
            self.loads.limits[address] = self.queue_of(endpoint).limit(load, in_flight)
        if changed:
            self.changed.add(endpoint)
        return endpoint

    def expire(self, now: float) -> None:
        """Forget stale loads."""
        for address in self.loads.expire(now):
            self.prompts.outstanding.expire(address)
            if cluster := self._addresses.cluster(address):
                self.changed.add(endpoint_of(cluster))

    def take_changed(self) -> Collection[str]:
        """The endpoints that may have changed since the last call."""
        changed, self.changed = self.changed, set()
        return changed


def endpoint_of(cluster: str) -> str:
    return cluster.rpartition("/")[0]
