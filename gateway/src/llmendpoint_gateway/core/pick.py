"""The decision for one request: which replica, or why none."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmendpoint_gateway.core.routing import Table

# The first takes the request, the second its only retry: a request that kills its replica kills at most these two.
MOST_REPLICAS = 2
NO_REPLICA_RETRY_AFTER = (
    5  # seconds: about what a replica needs from Ready to its first request, and no stampede
)

# A picker is back in 1 to 2 s, and SDKs try twice more by default: their three attempts must span that.
RESTART_RETRY_AFTER = 2


@dataclass(frozen=True, slots=True)
class Picked:
    """`addresses`: one or two, the first is to take the request."""

    endpoint: str
    cluster: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer in the gateway's own name. `retry_after` in seconds; `param` names the field at fault."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None


def pick(
    name: str,
    table: Table,
    in_flight: Mapping[str, Mapping[str, int]],
    suspects: Collection[str],
    tie: int,
) -> Picked | Rejected:
    """Filter, then the replicas with the fewest requests in flight.

    `in_flight`: cluster -> address -> requests. `suspects`: addresses that refused a connection a moment ago.
    `tie` rotates the replicas, so that equals take turns.
    """
    key = table.names.get(name)
    if key is None:
        return unknown_model(name)
    target = table.targets.get(key)
    if target is None:
        return no_replica(key)
    addresses = target.addresses
    if suspects:
        # When all are suspect the suspicion is worth nothing: try rather than refuse.
        addresses = tuple(a for a in addresses if a not in suspects) or addresses
    if len(addresses) > 1:
        addresses = least_loaded(addresses, in_flight.get(target.cluster, {}), tie)
    return Picked(key, target.cluster, addresses)


def least_loaded(addresses: tuple[str, ...], load: Mapping[str, int], tie: int) -> tuple[str, ...]:
    """The two least loaded, the less loaded first; among equals the order that `tie` rotates to."""
    start = tie % len(addresses)
    rotated = addresses[start:] + addresses[:start]
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


def no_replica(key: str) -> Rejected:
    return Rejected(
        503,
        "no_ready_replica",
        f"The endpoint {key} has no ready replica now. Try again, or see `kubectl describe llmendpoint {key.split('/')[1]} -n {key.split('/')[0]}`.",
        retry_after=NO_REPLICA_RETRY_AFTER,
    )
