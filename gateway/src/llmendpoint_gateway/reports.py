"""What came of attempts at replicas, for the breakers of replicas and endpoints and for who is to be refused."""

import structlog

from llmendpoint_gateway.control import Control, endpoint_of
from llmendpoint_gateway.core.breaker import Attempt, Outcome
from llmendpoint_gateway.core.circuit import Cause

log = structlog.get_logger()


class Reports:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._told_open: frozenset[str] = frozenset()  # whose open breaker the log was told of

    def report(self, attempt: Attempt) -> None:
        """What came of an attempt at a replica, as Envoy saw it."""
        control, outcome, address = self._control, attempt.outcome, attempt.address
        if outcome is None:
            return
        now = control.now()
        changed = control.breakers.report(address, outcome, now, trial=attempt.trial)
        if changed is not None:
            log.warning("breaker", address=address, standing=changed.value, outcome=outcome.value)
        self._report_endpoint(attempt, endpoint_of(attempt.cluster), now)
        if attempt.print_ is not None:
            self._report_print(attempt, attempt.print_, now)

    def tick(self) -> None:
        """What time alone brings about."""
        control, now = self._control, self._control.now()
        control.expire()
        for key in [*control.circuits.open]:
            control.changed(key)  # it may be half-open since
            if self._recovered(key) or key in control.circuits.forgotten(now):
                control.circuits.close(key, now)
        self._log_circuits(now)

    def _log_circuits(self, now: float) -> None:
        opened = frozenset(self._control.circuits.open)
        for key in opened ^ self._told_open:
            state, cause = self._control.circuits.state(key, now), self._control.circuits.cause(key)
            figures = {"requests": state.requests, "errors": state.errors}
            why = {"cause": cause.value, **figures} if cause else {}
            log.warning("endpoint breaker", endpoint=key, standing=state.standing.value, **why)
        self._told_open = opened

    def _report_endpoint(self, attempt: Attempt, key: str, now: float) -> None:
        circuits, good = self._control.circuits, attempt.outcome is Outcome.ANSWERED
        if key in circuits.open:
            if attempt.trial:
                circuits.tried(key, good, now)
        elif not good and attempt.told:
            route = self._control.route(key)
            if route is not None and route.circuit is not None:
                circuits.failed(key, now, route.circuit)
        self._control.changed(key)

    def _report_print(self, attempt: Attempt, print_: str, now: float) -> None:
        """Crashes of a revision that a rollout judges are the revision's fault, whatever it was asked."""
        control = self._control
        if attempt.outcome is Outcome.ANSWERED:
            control.poison.answered(print_)
            return
        endpoint = control.view.endpoints.get(endpoint_of(attempt.cluster))
        if endpoint is not None and endpoint.judged:
            return
        if control.poison.crashed(print_, attempt.address, now, again=attempt.again):
            log.error("request refused from now on", address=attempt.address, cause="two replicas crashed")

    def _recovered(self, key: str) -> bool:
        """Opened because every replica was ejected, and now one is not, or there is none any more; or a rollout that
        judges by itself has begun since."""
        control = self._control
        route = control.route(key)
        if route is None or route.circuit is None:
            return True
        if control.circuits.cause(key) is not Cause.EJECTED:
            return False
        addresses = [address for target in route.targets for address in target.addresses]
        return not addresses or not all(address in control.breakers.ejected for address in addresses)
