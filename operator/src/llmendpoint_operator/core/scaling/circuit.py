"""An endpoint's breaker, as its gateways report it: which of them refuse its requests now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..endpoint.steps import Event

CONDITION = "CircuitOpen"


@dataclass(frozen=True, slots=True)
class Circuit:
    """One gateway's report. `errors` of `requests` failed. `state`: closed, open or half-open."""

    state: str
    requests: int = 0
    errors: int = 0

    @property
    def refuses(self) -> bool:
        """Whether the gateway refuses requests without asking a replica; half-open, all but single trials."""
        return self.state != "closed"


def refusing(circuits: Mapping[str, Circuit]) -> dict[str, Circuit]:
    """The breakers that are not closed, by gateway."""
    return {gateway: circuits[gateway] for gateway in sorted(circuits) if circuits[gateway].refuses}


def circuit_message(circuits: Mapping[str, Circuit]) -> str:
    """The condition's message, without figures that change by themselves; empty if all are closed."""
    found = refusing(circuits)
    if not found:
        return ""
    who = "every gateway" if len(found) == len(circuits) else ", ".join(found)
    hint = "see the replicas' logs; the breaker closes by itself when trial requests succeed"
    return f"too many requests failed, so new ones get 503 and Retry-After from {who} and reach no replica; {hint}"


def circuit_event(circuits: Mapping[str, Circuit], was_open: bool) -> Event | None:
    """The Event when the condition changes, else None."""
    found = refusing(circuits)
    if bool(found) == was_open:
        return None
    if not found:
        return Event("CircuitClosed", "every gateway sends requests to replicas again")
    figures = ", ".join(f"{gateway}: {_figures(circuit)}" for gateway, circuit in found.items())
    return Event("CircuitOpened", f"the gateway answers requests with 503 ({figures})", "Warning")


def _figures(circuit: Circuit) -> str:
    if not circuit.requests:
        return "every replica is ejected"
    return f"{circuit.errors} of {circuit.requests} failed"
