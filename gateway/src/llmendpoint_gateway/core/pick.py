"""The decision for one request: which replica, or why none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from llmendpoint_gateway.core.breaker import Breakers
from llmendpoint_gateway.core.circuit import Cause, Circuits
from llmendpoint_gateway.core.rotation import Rotation
from llmendpoint_gateway.core.routing import Route, Table, Target
from llmendpoint_gateway.core.trials import Standing

# The first takes the request, the second its only retry: a request that kills its replica kills at most these two.
MOST_REPLICAS = 2
NO_REPLICA_RETRY_AFTER = (
    5  # seconds: about what a replica needs from Ready to its first request, and no stampede
)

# After a wait that was in vain the request has lost its place, and is to have another soon.
EXPIRED_RETRY_AFTER = 1
# Of a full queue, where nothing is known of how long requests wait in it.
FULL_RETRY_AFTER, LONGEST_RETRY_AFTER = 5, 30

# A picker is back in 1 to 2 s, and SDKs try twice more by default: their three attempts must span that.
RESTART_RETRY_AFTER = 2


NO_LOAD: Mapping[str, int] = {}
NO_LIMITS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Picked:
    """`addresses`: one or two, the first is to take the request. `trial`: it is ejected, or the endpoint's breaker is not
    closed, and this request tries it. `first_byte`: seconds until which each of them is to have begun to answer."""

    endpoint: str
    cluster: str
    addresses: tuple[str, ...]
    trial: bool = False
    first_byte: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer in the gateway's own name. `retry_after` in seconds; `param` names the field at fault; `awaited` is the
    endpoint whose next replica can still answer the request; `final`: to try again is of no use; `allow`: the methods that
    the path takes."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None
    awaited: str | None = None
    final: bool = False
    allow: str | None = None


def pick(
    name: str,
    table: Table,
    rotation: Rotation,
    in_flight: Mapping[str, Mapping[str, int]],
    breakers: Breakers,
    tie: int,
    now: float,
    stale: bool,
    limits: Mapping[str, int] = NO_LIMITS,
    circuits: Circuits | None = None,
    caller: int | None = None,
) -> Picked | Rejected:
    """The revision by its weight, then of its replicas those with the fewest requests in flight.

    `in_flight`: cluster -> address -> requests. `tie` rotates the replicas, so that equals take turns. `now`: seconds,
    for the breakers. `stale`: the API server is out of reach, so what it last said may be over. `limits`: how many
    requests in flight a replica may have; those without one may have any number. `circuits`: the endpoints' breakers.
    `caller`: whose request it is, for whose trial it may be.
    """
    key = table.names.get(name)
    if key is None:
        return unknown_model(name)
    route = table.routes.get(key)
    target = _target(key, route, rotation, breakers, now, stale, caller) if route else None
    if route is None or target is None:
        return no_replica(key, awaited=key in table.expecting)
    load, trial = in_flight.get(target.cluster, NO_LOAD), False
    if circuits is not None and (circuits.open or breakers.ejected):
        seconds = _away(key, route, target, breakers, circuits, now, caller)
        if seconds > 0:
            return circuit_open(key, seconds)
        trial = key in circuits.open
    if breakers.ejected:
        addresses, ejected = choose(target.addresses, load, breakers, tie, now, caller)
        trial = trial or ejected
    else:
        addresses = least_loaded(target.addresses, load, tie)
    if not trial and not _has_room(addresses[0], load, limits):
        return _with_room(key, route, rotation, in_flight, breakers, tie, now, limits)
    return Picked(key, target.cluster, addresses, trial, route.first_byte)


def _away(
    key: str,
    route: Route,
    target: Target,
    breakers: Breakers,
    circuits: Circuits,
    now: float,
    caller: int | None,
) -> float:
    """Seconds for which requests are to stay away from the endpoint; 0: this one may go."""
    if route.circuit is None or target not in route.targets:
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
    key: str,
    route: Route,
    rotation: Rotation,
    in_flight: Mapping[str, Mapping[str, int]],
    breakers: Breakers,
    tie: int,
    now: float,
    limits: Mapping[str, int],
) -> Picked | Rejected:
    """The first choice has no room: another replica that has, of whichever assigned revision; else the request waits."""
    targets = []
    for target in route.targets:
        load = in_flight.get(target.cluster, NO_LOAD)
        free = tuple(
            address
            for address in target.addresses
            if _has_room(address, load, limits) and breakers.standing(address, now) is Standing.CLOSED
        )
        if free:
            targets.append(replace(target, addresses=free))
    if not targets:
        return saturated(key)
    target = rotation.next(key, tuple(targets))
    addresses = least_loaded(target.addresses, in_flight.get(target.cluster, NO_LOAD), tie)
    return Picked(key, target.cluster, addresses, first_byte=route.first_byte)


def _target(
    key: str,
    route: Route,
    rotation: Rotation,
    breakers: Breakers,
    now: float,
    stale: bool,
    caller: int | None,
) -> Target | None:
    """The revision whose turn it is.

    One of which every replica is lost gives its share to the others, and with all of them lost the revision that a
    rollout would go back to takes over; a gateway that is cut off takes any that is ready, at the first failure.
    """
    targets = route.targets
    if breakers.ejected:
        targets = tuple(t for t in targets if not all(breakers.lost(a, now, caller) for a in t.addresses))
    if not targets and route.standby is not None:
        return route.standby
    if stale and route.others:
        known = [address for target in route.targets for address in target.addresses]
        if all(breakers.standing(address, now) is not Standing.CLOSED for address in known):
            return max(route.others, key=lambda target: len(target.addresses))
    targets = targets or route.targets
    return rotation.next(key, targets) if targets else None


def choose(
    addresses: tuple[str, ...],
    load: Mapping[str, int],
    breakers: Breakers,
    tie: int,
    now: float,
    caller: int | None = None,
) -> tuple[tuple[str, ...], bool]:
    """The replicas in turn when some are ejected, and whether the first of them is.

    A half-open one may come first, never second: a retry is no trial. With all ejected the least bad are tried
    rather than the request refused.
    """
    closed = [a for a in addresses if breakers.standing(a, now) is Standing.CLOSED]
    candidates = closed + [a for a in addresses if breakers.wants_trial(a, now, caller)]
    if not candidates:
        fewest = min(breakers.ejections_of(a) for a in addresses)
        return least_loaded([a for a in addresses if breakers.ejections_of(a) == fewest], load, tie), True
    first = least_loaded(candidates, load, tie)[0]
    rest = [a for a in closed if a != first]
    return (first, *least_loaded(rest, load, tie)[:1]), first not in closed


def least_loaded(addresses: Sequence[str], load: Mapping[str, int], tie: int) -> tuple[str, ...]:
    """The two least loaded, the less loaded first; among equals the order that `tie` rotates to."""
    if len(addresses) < 2:
        return tuple(addresses)
    start = tie % len(addresses)
    rotated = (*addresses[start:], *addresses[:start])
    if not load:
        return rotated[:MOST_REPLICAS]
    return tuple(sorted(rotated, key=lambda a: load.get(a, 0))[:MOST_REPLICAS])


def unknown_model(name: str) -> Rejected:
    return Rejected(
        404,
        "model_not_found",
        f"The model `{name[:200]}` does not exist. GET /v1/models lists what does.",
        "model",
    )


def starting() -> Rejected:
    """Before Envoy took a first snapshot: nothing is known, which is not the same as nothing being there."""
    return Rejected(
        503, "gateway_starting", "The gateway has just started. Try again.", retry_after=RESTART_RETRY_AFTER
    )


def no_replica(key: str, *, awaited: bool = False) -> Rejected:
    return Rejected(
        503,
        "no_ready_replica",
        f"The endpoint {key} has no ready replica now. Try again, or see `kubectl describe llmendpoint {key.split('/')[1]} -n {key.split('/')[0]}`.",
        retry_after=NO_REPLICA_RETRY_AFTER,
        awaited=key if awaited else None,
    )


def saturated(key: str) -> Rejected:
    """Every replica has as much as it is to have: the answer for who has waited in vain."""
    return Rejected(
        503,
        "queue_timeout",
        f"Every replica of the endpoint {key} is busy, and the request has waited as long as it may. Try again.",
        retry_after=EXPIRED_RETRY_AFTER,
        awaited=key,
    )


def queue_full(key: str, waiting: int, seconds: float | None) -> Rejected:
    """`seconds`: how long who was served last had waited: until then there will be room."""
    after = FULL_RETRY_AFTER if seconds is None else min(max(ceil(seconds), 1), LONGEST_RETRY_AFTER)
    return Rejected(
        429,
        "queue_full",
        f"{waiting} requests wait for the endpoint {key}, and there is no room for more. Try again later.",
        retry_after=after,
    )


def circuit_open(key: str, seconds: float) -> Rejected:
    return Rejected(
        503,
        "circuit_open",
        f"Requests for the endpoint {key} fail, so that none is let through at the moment. Try again later.",
        retry_after=ceil(seconds),
    )


def poisoned() -> Rejected:
    """Two replicas went down with this request: a third is not to."""
    return Rejected(
        503,
        "request_refused",
        "Two replicas crashed while they answered this very request, so it is not tried again for five minutes.",
        final=True,
    )
