"""Wakes an endpoint when its gateways open or close its breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ...core.names import Key
from ...core.scaling.circuit import Circuit, refusing
from ...core.scaling.demand import Demand

LOOK_S = 2.0
"""Seconds between checks whether a gateway that refused is silent or gone; no event reports that."""


class Circuits:
    """The leader's view of the breakers. `demand_of` returns the gateways' reports on an endpoint."""

    def __init__(self, demand_of: Callable[[Key], Demand | None], wake: Callable[[Key], None]) -> None:
        self._demand_of = demand_of
        self._wake = wake
        self._open: dict[Key, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """Number of endpoints for which a gateway refuses requests."""
        return len(self._open)

    def of(self, key: Key) -> Mapping[str, Circuit]:
        """The endpoint's breaker by gateway, without silent gateways."""
        demand = self._demand_of(key)
        return demand.circuits if demand is not None else {}

    def heard(self, key: Key) -> None:
        """To be called when a gateway reported something new."""
        now = tuple(refusing(self.of(key)))
        if now == self._open.get(key, ()):
            return
        if now:
            self._open[key] = now
        else:
            self._open.pop(key, None)
        self._wake(key)

    async def run(self) -> None:
        """Check for silent gateways until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for key in list(self._open):
                self.heard(key)
