"""Handles results: `settle` is called for each attempt that Envoy reports, and once at a request's end."""

from typing import NamedTuple

from llmendpoint_gateway.core.outcome.attempt import Attempt, Ended, Outcome
from llmendpoint_gateway.core.placement.endpoint_breaker import Cause
from llmendpoint_gateway.core.placement.placement import Placement, endpoint_of
from llmendpoint_gateway.core.placement.trials import Standing


class Settled(NamedTuple):
    """What follows. `room`: a replica of the endpoint has a free place. `idle`: the cluster whose last request this
    was. `standing`: the replica's new standing, if it changed. `refused`: this request is refused from now on."""

    endpoint: str
    room: bool = False
    idle: str | None = None
    standing: Standing | None = None
    refused: bool = False


def settle(outcome: Attempt | Ended, placement: Placement, now: float) -> Settled:
    if isinstance(outcome, Ended):
        return _end(outcome.ticket, placement, now)
    if outcome.outcome is None:
        return Settled(endpoint_of(outcome.cluster))
    return _attempt(outcome, outcome.outcome, placement, now)


def recover(placement: Placement, now: float) -> None:
    """Close breakers that need no trial: those of endpoints whose replicas are back, or that got no requests."""
    circuits = placement.circuits
    for key in [*circuits.open]:
        placement.changed.add(key)  # it may have become half-open
        if _recovered(key, placement) or key in circuits.forgotten(now):
            circuits.close(key, now)


def _end(ticket: int, placement: Placement, now: float) -> Settled:
    """Free the request's place and all that it held."""
    placed = placement.placed.pop(ticket)
    picked, caller, address = placed.picked, placed.tag.caller, placed.address
    placement.kept.give_back(placed.kept, caller)
    first = address == picked.addresses[0]  # only the first replica was a trial
    placement.breakers.ended(address, now, trial=picked.trial and first)
    placement.circuits.ended(picked.endpoint, now, caller)
    if picked.trial:
        placement.circuits.trial_ended(picked.endpoint, now)
    placement.changed.add(picked.endpoint)
    placement.tallies.request(picked.cluster, address)
    placement.counts_of(placed).release(picked.cluster, address)
    placement.prompts.outstanding.end(address, placed.sent)
    last = not placement.has_any(picked.cluster)
    return Settled(picked.endpoint, True, picked.cluster if last else None)


def _attempt(attempt: Attempt, outcome: Outcome, placement: Placement, now: float) -> Settled:
    key, tag = endpoint_of(attempt.cluster), attempt.tag
    others = placement.circuits.others(key, tag.caller, now)
    standing = placement.breakers.report(
        attempt.address, outcome, now, trial=attempt.trial, over=attempt.over, tag=tag, others=others
    )
    _settle_endpoint(attempt, key, placement, now)
    refused = _settle_print(attempt, key, placement, now)
    room = _count(attempt, outcome, placement) and _move(tag.ticket, attempt.address, placement, now)
    return Settled(key, room, standing=standing, refused=refused)


def _count(attempt: Attempt, outcome: Outcome, placement: Placement) -> bool:
    """Count the attempt for its replica, except as the request that its own end counts. Returns whether Envoy tries the
    request once more."""
    if attempt.over and outcome is not Outcome.ANSWERED:
        placement.tallies.error(attempt.cluster, attempt.address)
    placed = placement.placed.get(attempt.tag.ticket)
    if not attempt.retried or placed is None or placed.address != attempt.address:
        return False  # or the request is over
    placement.tallies.request(attempt.cluster, attempt.address)
    return True


def _settle_endpoint(attempt: Attempt, key: str, placement: Placement, now: float) -> None:
    """A failure that Envoy retries does not count yet."""
    circuits, good = placement.circuits, attempt.outcome is Outcome.ANSWERED
    caller = None if attempt.outcome is Outcome.UNREACHABLE else attempt.tag.caller or None
    if key in circuits.open:
        if attempt.trial and (good or attempt.told):
            circuits.tried(key, good, now, caller, attempt.tag.ticket)
    elif not good and attempt.told:
        route = placement.route(key)
        if route is not None and route.circuit is not None:
            circuits.failed(key, now, route.circuit, caller, attempt.tag.print_)
    placement.changed.add(key)


def _settle_print(attempt: Attempt, key: str, placement: Placement, now: float) -> bool:
    """Whether the request is refused from now on. While a rollout judges a revision, its crashes are the revision's
    fault, whatever the request was."""
    print_ = attempt.tag.print_
    if not print_ or not (attempt.broken or attempt.whole):
        return False
    if attempt.whole:
        placement.poison.answered(key, print_)
        return False
    endpoint = placement.view.endpoints.get(key)
    if endpoint is None or endpoint.judged:
        return False
    return placement.poison.crashed(key, print_, attempt.address, now, again=attempt.again)


def _move(ticket: int, failed: str, placement: Placement, now: float) -> bool:
    """The attempt at this replica failed and Envoy tries the next one: move the request there. Returns False if there
    is none."""
    placed = placement.placed[ticket]
    if placed.picked.addresses[-1] == failed:
        return False  # it has no other replica
    picked, placed.address = placed.picked, placed.picked.addresses[-1]
    counts = placement.counts_of(placed)
    counts.take(picked.cluster, placed.address)
    counts.release(picked.cluster, failed)
    placement.breakers.ended(failed, now, trial=picked.trial)
    placement.loads.touched.add(placed.address)
    placed.sent = placement.prompts.move(
        placed.prompt, picked.cluster, picked.adapter, failed, placed.sent, placed.address
    )
    placement.changed.add(picked.endpoint)
    return True


def _recovered(key: str, placement: Placement) -> bool:
    """Whether the breaker's cause is gone. It opened because every replica was ejected, and one is not ejected any
    more, or none exists. Or a rollout that judges by itself has begun."""
    route = placement.route(key)
    if route is None or route.circuit is None:
        return True
    if placement.circuits.cause(key) is not Cause.EJECTED:
        return False
    addresses = [address for target in route.targets for address in target.addresses]
    return not addresses or not all(address in placement.breakers.ejected for address in addresses)
