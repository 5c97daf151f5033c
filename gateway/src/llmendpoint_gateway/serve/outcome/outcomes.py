"""Handles how requests end: by one `settle`, whichever part of the gateway saw the outcome."""

from collections.abc import Callable

import structlog

from llmendpoint_gateway.core.outcome.attempt import Attempt, Ended
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.settle import recover, settle
from llmendpoint_gateway.serve.placement.control import Control
from llmendpoint_gateway.serve.request.held import HeldRequests

log = structlog.get_logger()


class Outcomes:
    """`clock`: seconds, monotonic."""

    def __init__(
        self, placement: Placement, held: HeldRequests, control: Control, clock: Callable[[], float]
    ) -> None:
        self._placement, self._held, self._control, self._clock = placement, held, control, clock
        self._told_open: frozenset[str] = frozenset()  # endpoints whose open breaker was logged

    def settle(self, outcome: Attempt | Ended) -> None:
        """Settle the result of an attempt at a replica, as Envoy saw it, or a request's end."""
        settled = settle(outcome, self._placement, self._clock())
        if isinstance(outcome, Attempt):
            if settled.standing is not None:
                why = outcome.outcome.value if outcome.outcome else None
                log.warning("breaker", address=outcome.address, standing=settled.standing.value, outcome=why)
            if settled.refused:
                log.error(
                    "request refused from now on", address=outcome.address, cause="two replicas crashed"
                )
        if settled.idle is not None:
            self._control.idle(settled.idle)
        if settled.room:
            self._held.retry(settled.endpoint)

    def tick(self) -> None:
        """Make the changes that need no event but the passing of time."""
        now = self._clock()
        self._placement.expire(now)
        self._held.retry_all()
        recover(self._placement, now)
        self._log_circuits(now)

    def _log_circuits(self, now: float) -> None:
        circuits = self._placement.circuits
        opened = frozenset(circuits.open)
        for key in opened ^ self._told_open:
            state, cause = circuits.state(key, now), circuits.cause(key)
            figures = {"requests": state.requests, "errors": state.errors}
            why = {"cause": cause.value, **figures} if cause else {}
            log.warning("endpoint breaker", endpoint=key, standing=state.standing.value, **why)
        self._told_open = opened
