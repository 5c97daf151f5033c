"""The two decisions for one request: which endpoint it is for, and which replica gets it, or why none does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from llmendpoint_gateway.core.endpoint.departed import Departed
from llmendpoint_gateway.core.endpoint.loads import Loads
from llmendpoint_gateway.core.placement.adapters import holding
from llmendpoint_gateway.core.placement.endpoint_breaker import Cause, Circuits
from llmendpoint_gateway.core.placement.in_flight import InFlight
from llmendpoint_gateway.core.placement.preference import Wanted, draw, how_busy, preferred
from llmendpoint_gateway.core.placement.prompts import Prompts
from llmendpoint_gateway.core.placement.replica_breaker import Breakers
from llmendpoint_gateway.core.placement.rotation import Rotation
from llmendpoint_gateway.core.placement.routing import Route, Table, Target
from llmendpoint_gateway.core.placement.trials import Standing
from llmendpoint_gateway.core.request.prompt import Prompt
from llmendpoint_gateway.core.request.refusals import (
    Rejected,
    adapter_not_loaded,
    circuit_open,
    no_replica,
    saturated,
    unknown_model,
)

# The first gets the request, the second its only retry. So a request that crashes its replica crashes at most two.
MOST_REPLICAS = 2

NO_LOAD: Mapping[str, int] = {}

Order = Callable[[Sequence[str]], tuple[str, ...]]
"""Some replicas -> at most MOST_REPLICAS of them, the best first."""


class Picked(NamedTuple):
    """`addresses`: one or two; the first gets the request. `trial`: this request tests an ejected replica, or an
    endpoint whose breaker is not closed. `first_byte`: seconds within which each replica must begin to answer. `adapter`:
    the LoRA adapter that the request is for.

    A named tuple, like all that is made for each request: a frozen dataclass takes several times as long.
    """

    endpoint: str
    cluster: str
    addresses: tuple[str, ...]
    trial: bool = False
    first_byte: float | None = None
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class PickState:
    """What `place` decides by. This value is made anew when the table changes; its other parts change in place with
    each request."""

    table: Table
    rotation: Rotation
    in_flight: InFlight
    breakers: Breakers
    circuits: Circuits
    loads: Loads
    prompts: Prompts = field(default_factory=Prompts)


def resolve(name: str, names: Mapping[str, str], departed: Departed, now: float) -> str | Rejected:
    """The key of the endpoint that a model name means. A request for a recently deleted endpoint may wait (`awaited`).

    `names`: model name -> endpoint key, with every endpoint's key among the names.
    """
    key = names.get(name)
    if key is not None:
        return key
    gone = departed.endpoint(name, now)
    awaited = gone if gone is not None and names.get(gone) != gone else None
    return replace(unknown_model(name), awaited=awaited)


def place(
    key: str,
    state: PickState,
    tie: int,
    now: float,
    stale: bool,
    caller: int | None = None,
    adapter: str = "",
    prompt: Prompt | None = None,
) -> Picked | Rejected:
    """Choose the revision by its weight, then the replicas that have the beginning of the prompt, or those with the
    fewest requests in flight.

    `tie` rotates the replicas, so that equal ones take turns. `now`: seconds, for the breakers. `stale`: the API server
    is unreachable, so the last known state may be outdated. `caller`: who sent the request; it decides whether the
    request may be a trial. `adapter`: only replicas that have it are considered, so a rollback target takes over while
    the assigned revisions do not have it yet. `prompt`: None if the request has none; then only the load counts.
    """
    table, breakers, circuits = state.table, state.breakers, state.circuits
    whole = route = table.routes.get(key)
    if route is not None and adapter:
        route = holding(route, adapter, state.loads.holds)
    target = _target(key, route, state, now, stale, caller) if route else None
    if whole is None or route is None or target is None:
        if whole is not None and whole.targets:
            return adapter_not_loaded(key, adapter, awaited=True)
        return no_replica(key, awaited=key in table.expecting)
    load, trial = state.in_flight.counts.get(target.cluster, NO_LOAD), False
    order = _order(target.cluster, state, tie, adapter, prompt)
    if circuits.open or breakers.ejected:
        seconds = _away(key, whole, target, state, now, caller)
        if seconds > 0:
            return circuit_open(key, seconds)
        trial = key in circuits.open
    if breakers.ejected:
        fewest = _order(target.cluster, state, tie)
        addresses, ejected = choose(target.addresses, order, fewest, breakers, now, caller)
        trial = trial or ejected
    else:
        addresses = order(target.addresses)
    if not trial and not _has_room(addresses[0], load, state.loads.limits):
        return _with_room(key, route, state, tie, now, adapter, prompt)
    return Picked(key, target.cluster, addresses, trial, route.first_byte, adapter)


def _away(key: str, route: Route, target: Target, state: PickState, now: float, caller: int | None) -> float:
    """Seconds for which the endpoint's breaker refuses requests; 0: this one may go. `route`: with all replicas, whatever
    adapters they have: the breaker opens if all of them are ejected."""
    breakers, circuits = state.breakers, state.circuits
    if route.circuit is None or target.revision not in [part.revision for part in route.targets]:
        return 0.0
    if key not in circuits.open:
        addresses = [address for part in route.targets for address in part.addresses]
        if not all(breakers.hopeless(a) and not breakers.wants_trial(a, now, caller) for a in addresses):
            return 0.0
        circuits.all_ejected(key, now, route.circuit)
    elif circuits.cause(key) is Cause.EJECTED and any(
        breakers.standing(a, now) is Standing.CLOSED or breakers.wants_trial(a, now, caller)
        for a in target.addresses
    ):
        return 0.0
    return circuits.wait(key, now, caller)


def _has_room(address: str, load: Mapping[str, int], limits: Mapping[str, int]) -> bool:
    limit = limits.get(address)
    return limit is None or load.get(address, 0) < limit


def _with_room(
    key: str, route: Route, state: PickState, tie: int, now: float, adapter: str, prompt: Prompt | None
) -> Picked | Rejected:
    """The first choice has no room: choose a replica that has room, of any assigned revision. Without one the request
    waits."""
    counts, limits, breakers = state.in_flight.counts, state.loads.limits, state.breakers
    targets = []
    for target in route.targets:
        load = counts.get(target.cluster, NO_LOAD)
        free = tuple(
            address
            for address in target.addresses
            if _has_room(address, load, limits) and breakers.standing(address, now) is Standing.CLOSED
        )
        if free:
            targets.append(replace(target, addresses=free))
    if not targets:
        return saturated(key)
    target = state.rotation.next(key, tuple(targets))
    addresses = _order(target.cluster, state, tie, adapter, prompt)(target.addresses)
    return Picked(key, target.cluster, addresses, first_byte=route.first_byte, adapter=adapter)


def _target(
    key: str, route: Route, state: PickState, now: float, stale: bool, caller: int | None
) -> Target | None:
    """The revision whose turn it is.

    If every replica of a revision is lost, the others get its share. If all assigned revisions are lost, the rollback
    target takes over. A gateway without the API server uses any ready revision once all known replicas are ejected.
    """
    targets, breakers = route.targets, state.breakers
    if breakers.ejected:
        targets = tuple(t for t in targets if not all(breakers.lost(a, now, caller) for a in t.addresses))
    if not targets and route.standby is not None:
        return route.standby
    if stale and route.others:
        known = [address for target in route.targets for address in target.addresses]
        if all(breakers.standing(address, now) is not Standing.CLOSED for address in known):
            return max(route.others, key=lambda target: len(target.addresses))
    targets = targets or route.targets
    return state.rotation.next(key, targets) if targets else None


def choose(
    addresses: tuple[str, ...],
    order: Order,
    fewest: Order,
    breakers: Breakers,
    now: float,
    caller: int | None = None,
) -> tuple[tuple[str, ...], bool]:
    """The replicas to try in order, if some are ejected, and whether the first of them is ejected.

    A half-open replica may be first but never second: a retry is not a trial. It gets its trial as soon as it is first by
    `fewest`, the order by load, whatever lies in the caches of others. If all are ejected, those with the fewest ejections
    are tried instead of refusing the request.
    """
    closed = [a for a in addresses if breakers.standing(a, now) is Standing.CLOSED]
    candidates = closed + [a for a in addresses if breakers.wants_trial(a, now, caller)]
    if not candidates:
        least = min(breakers.ejections_of(a) for a in addresses)
        return fewest([a for a in addresses if breakers.ejections_of(a) == least]), True
    first = fewest(candidates)[0]
    if order is not fewest and first in closed:
        first = order(closed)[0]
    rest = [a for a in closed if a != first]
    return (first, *fewest(rest)[:1]), first not in closed


def _order(
    cluster: str, state: PickState, tie: int, adapter: str = "", prompt: Prompt | None = None
) -> Order:
    """Of replicas of this cluster. Without a prompt by requests in flight."""
    load = state.in_flight.counts.get(cluster, NO_LOAD)
    if prompt is None:
        return lambda addresses: least_loaded(addresses, load, tie)
    wanted = Wanted(prompt, cluster, adapter)
    return lambda addresses: _for_prompt(addresses, wanted, load, state, tie)


def _for_prompt(
    addresses: Sequence[str], wanted: Wanted, load: Mapping[str, int], state: PickState, tie: int
) -> tuple[str, ...]:
    """Replicas without room are left out, unless none has room."""
    if len(addresses) < 2:
        return tuple(addresses)
    if state.loads.limits:
        addresses = [a for a in addresses if _has_room(a, load, state.loads.limits)] or addresses
    busy = how_busy(addresses, state.prompts.outstanding, load)
    first = preferred(addresses, wanted, state.prompts.prefixes, busy, tie)
    if not busy.in_tokens:
        order = least_loaded(addresses, load, tie)
        return order if first is None else (first, *[a for a in order if a != first][:1])
    if first is None:
        first = draw(addresses, busy, load, tie)
    rest = [a for a in addresses if a != first]
    return (first, draw(rest, busy, load, tie)) if rest else (first,)


def least_loaded(addresses: Sequence[str], load: Mapping[str, int], tie: int) -> tuple[str, ...]:
    """The two least loaded replicas, the less loaded first. `tie` rotates the order of equal ones."""
    if len(addresses) < 2:
        return tuple(addresses)
    start = tie % len(addresses)
    rotated = (*addresses[start:], *addresses[:start])
    if not load:
        return rotated[:MOST_REPLICAS]
    return tuple(sorted(rotated, key=lambda a: load.get(a, 0))[:MOST_REPLICAS])
