"""All observers of endpoints: `update` starts the questions, `read` returns what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.endpoint.snapshot import Observed, Snapshot
from ..core.names import Key
from .adapters.loader import AdapterLoader
from .capacity.inspection import Inspection
from .models.tasks import Models
from .rollout.evidence import Collector
from .scaling.circuit import Circuits
from .scaling.scaler import Scaler


@dataclass(frozen=True, slots=True)
class Observers:
    """The leader's observers, one for each subject."""

    scaler: Scaler
    circuits: Circuits
    models: Models
    collector: Collector
    inspection: Inspection
    adapters: AdapterLoader

    def update(self, snapshot: Snapshot) -> None:
        """Start the questions that this endpoint needs now, and end the others. The scaler is first, because
        its count decides whether a rollout asks the gateways."""
        self.scaler.update(snapshot)
        key = (snapshot.endpoint.namespace, snapshot.endpoint.name)
        scaled = replace(snapshot, observed=replace(snapshot.observed, scaling=self.scaler.of(key)))
        self.models.update(scaled)
        self.collector.update(scaled)
        self.inspection.update(scaled)
        self.adapters.update(scaled)

    def read(self, key: Key) -> Observed:
        """What is known. It starts and ends no question."""
        return Observed(
            evidence=self.collector.of(key),
            scaling=self.scaler.of(key),
            circuits=self.circuits.of(key),
            awaited=self.models.of(key),
            capacity=self.inspection.of(key),
            adapters=self.adapters.of(key),
        )

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self.collector.forget(key)
        self.scaler.forget(key)
        self.models.forget(key)
        self.inspection.forget(key)
        self.adapters.forget(key)
