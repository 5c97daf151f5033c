"""All that is found out about endpoints beside the caches: `update` starts it, `read` says what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.endpoint.snapshot import Observed, Snapshot
from ..core.names import Key
from .capacity.inspection import Inspection
from .models.tasks import Models
from .rollout.evidence import Collector
from .scaling.circuit import Circuits
from .scaling.scaler import Scaler


@dataclass(frozen=True, slots=True)
class Observers:
    """Of one leader, one for each subject."""

    scaler: Scaler
    circuits: Circuits
    models: Models
    collector: Collector
    inspection: Inspection

    def update(self, snapshot: Snapshot) -> None:
        """Begin what is to be found out about this endpoint now, and end what is not. The scaler is first: whether a
        rollout asks the gateways follows from the count."""
        self.scaler.update(snapshot)
        key = (snapshot.endpoint.namespace, snapshot.endpoint.name)
        scaled = replace(snapshot, observed=replace(snapshot.observed, scaling=self.scaler.of(key)))
        self.models.update(scaled)
        self.collector.update(scaled)
        self.inspection.update(scaled)

    def read(self, key: Key) -> Observed:
        """What is known; nothing begins or ends by it."""
        return Observed(
            evidence=self.collector.of(key),
            scaling=self.scaler.of(key),
            circuits=self.circuits.of(key),
            awaited=self.models.of(key),
            capacity=self.inspection.of(key),
        )

    def forget(self, key: Key) -> None:
        """The endpoint is gone."""
        self.collector.forget(key)
        self.scaler.forget(key)
        self.models.forget(key)
        self.inspection.forget(key)
