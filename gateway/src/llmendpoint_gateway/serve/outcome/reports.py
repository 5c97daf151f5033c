"""What came of attempts at replicas, for the breakers of replicas and endpoints and for who is to be refused."""

import structlog

from llmendpoint_gateway.core.outcome.attempt import Attempt, Outcome
from llmendpoint_gateway.core.placement.endpoint_breaker import Cause
from llmendpoint_gateway.serve.placement.placement import Placement, endpoint_of

log = structlog.get_logger()


class Reports:
    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._told_open: frozenset[str] = frozenset()  # whose open breaker the log was told of

    def report(self, attempt: Attempt) -> None:
        """What came of an attempt at a replica, as Envoy saw it."""
        placement, outcome, address = self._placement, attempt.outcome, attempt.address
        if outcome is None:
            return
        now, key, tag = placement.now(), endpoint_of(attempt.cluster), attempt.tag
        others = placement.circuits.others(key, tag.caller, now)
        changed = placement.breakers.report(
            address, outcome, now, trial=attempt.trial, over=attempt.over, tag=tag, others=others
        )
        if changed is not None:
            log.warning("breaker", address=address, standing=changed.value, outcome=outcome.value)
        self._report_endpoint(attempt, key, now)
        if tag.print_ and (attempt.broken or attempt.whole):
            self._report_print(attempt, key, now)
        if attempt.retried:
            placement.moved(tag.ticket, address)

    def tick(self) -> None:
        """What time alone brings about."""
        placement, now = self._placement, self._placement.now()
        placement.expire()
        for key in [*placement.circuits.open]:
            placement.changed(key)  # it may be half-open since
            if self._recovered(key) or key in placement.circuits.forgotten(now):
                placement.circuits.close(key, now)
        self._log_circuits(now)

    def _log_circuits(self, now: float) -> None:
        opened = frozenset(self._placement.circuits.open)
        for key in opened ^ self._told_open:
            state, cause = self._placement.circuits.state(key, now), self._placement.circuits.cause(key)
            figures = {"requests": state.requests, "errors": state.errors}
            why = {"cause": cause.value, **figures} if cause else {}
            log.warning("endpoint breaker", endpoint=key, standing=state.standing.value, **why)
        self._told_open = opened

    def _report_endpoint(self, attempt: Attempt, key: str, now: float) -> None:
        """A failure that is tried again is nobody's yet."""
        circuits, good = self._placement.circuits, attempt.outcome is Outcome.ANSWERED
        caller = None if attempt.outcome is Outcome.UNREACHABLE else attempt.tag.caller or None
        if key in circuits.open:
            if attempt.trial and (good or attempt.told):
                circuits.tried(key, good, now, caller, attempt.tag.ticket)
        elif not good and attempt.told:
            route = self._placement.route(key)
            if route is not None and route.circuit is not None:
                circuits.failed(key, now, route.circuit, caller, attempt.tag.print_)
        self._placement.changed(key)

    def _report_print(self, attempt: Attempt, key: str, now: float) -> None:
        """Crashes of a revision that a rollout judges are the revision's fault, whatever it was asked."""
        placement, print_ = self._placement, attempt.tag.print_
        if attempt.whole:
            placement.poison.answered(key, print_)
            return
        endpoint = placement.view.endpoints.get(key)
        if endpoint is None or endpoint.judged:
            return
        if placement.poison.crashed(key, print_, attempt.address, now, again=attempt.again):
            log.error("request refused from now on", address=attempt.address, cause="two replicas crashed")

    def _recovered(self, key: str) -> bool:
        """Opened because every replica was ejected, and now one is not, or there is none any more; or a rollout that
        judges by itself has begun since."""
        placement = self._placement
        route = placement.route(key)
        if route is None or route.circuit is None:
            return True
        if placement.circuits.cause(key) is not Cause.EJECTED:
            return False
        addresses = [address for target in route.targets for address in target.addresses]
        return not addresses or not all(address in placement.breakers.ejected for address in addresses)
