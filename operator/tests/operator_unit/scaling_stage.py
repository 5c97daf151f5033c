"""An endpoint for tests of the scaler: a clock, replicas that load, and callers; the decider does the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from llmendpoint_operator.core.scaling.decision import Decision, decide
from llmendpoint_operator.core.scaling.demand import Demand, Load
from llmendpoint_operator.core.scaling.records import first_memory
from llmendpoint_operator.core.scaling.scene import Memory, Scene

BEGIN = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
"""A Monday."""


def rules(**fields: Any) -> AutoscalingSpec:
    """Fields as in a manifest; ten replicas at most and a look every 15 s where nothing else is said."""
    return AutoscalingSpec.model_validate({"maxReplicas": 10, "pollingInterval": 15, **fields})


def loads(
    count: int, running: int, *, waiting: int = 0, kv: float = 0.1, sequences: int = 8
) -> dict[str, Load]:
    """So many replicas with the same load."""
    return {pod: Load(running, waiting, kv, sequences) for pod in pods(count)}


def pods(count: int) -> tuple[str, ...]:
    """Names."""
    return tuple(f"p{number}" for number in range(count))


@dataclass
class Stage:
    """`demand` is what the gateways tell at the next poll; None when they are silent."""

    spec: AutoscalingSpec = field(default_factory=rules)
    current: int = 1
    ready: int | None = None
    """None: all that are wanted, at once."""
    demand: Demand | None = field(default_factory=Demand)
    loading: bool = False
    served: bool = True
    max_num_seqs: int | None = None
    now: datetime = BEGIN
    memory: Memory | None = None
    counts: list[int] = field(default_factory=list)
    last: Decision | None = None

    def look(self) -> Decision:
        """One decision at this moment."""
        memory = self.memory or first_memory({}, self.current, self.now)
        names = pods(self.current if self.ready is None else self.ready)
        scene = Scene(
            self.spec, self.current, names, self.loading, self.served, self.max_num_seqs, self.demand
        )
        found = decide(scene, memory, self.now)
        self.memory, self.current, self.last = found.memory, found.replicas, found
        self.counts.append(found.replicas)
        return found

    def poll(self, times: int = 1) -> Decision:
        """So many polls, one interval apart."""
        self.memory = self.memory or first_memory({}, self.current, self.now)
        for _ in range(times):
            self.now += timedelta(seconds=self.spec.polling_interval)
            found = self.look()
        return found

    def new_leader(self) -> None:
        """Another process goes on with what the status says."""
        self.memory = first_memory({"desiredReplicas": self.current}, self.current, self.now)
