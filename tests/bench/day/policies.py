"""Who says how many replicas there shall be. KEDA's figures are those of its documentation: a trigger's value divided by
its threshold, by a HorizontalPodAutoscaler that looks every 15 s, with its tolerance, rates and window for going down."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from llmendpoint_operator.core.scaling.decision import decide
from llmendpoint_operator.core.scaling.demand import Demand, Load
from llmendpoint_operator.core.scaling.scene import Memory, Scene
from tests.bench.day.fleet import Fleet

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Fixed:
    """Always the same count."""

    replicas: int
    every_s: float = 3600.0

    def count(self, fleet: Fleet) -> int:
        return self.replicas


class Builtin:
    """The operator's own decider, told what a gateway tells."""

    def __init__(self, spec: AutoscalingSpec) -> None:
        self._spec = spec
        self._memory = Memory(MIDNIGHT, MIDNIGHT)
        self.every_s = float(spec.polling_interval)

    def count(self, fleet: Fleet) -> int:
        sequences, ready = fleet.engine.sequences, [r for r in fleet.staying if r.ready]
        loads = {r.name: Load(r.answering, 0, r.answering / sequences, sequences) for r in ready}
        demand = Demand(len(fleet.queue), {r.name: r.answering for r in ready}, loads)
        scene = Scene(
            self._spec,
            len(fleet.staying),
            tuple(loads),
            len(ready) < len(fleet.staying),
            True,
            sequences,
            demand,
        )
        decision = decide(scene, self._memory, MIDNIGHT + timedelta(seconds=fleet.now))
        self._memory = decision.memory
        return decision.replicas


def waiting(fleet: Fleet) -> int:
    """What a trigger on `vllm:num_requests_waiting` sees, the gateway's queue included."""
    return len(fleet.queue)


def in_flight(fleet: Fleet) -> int:
    """What a trigger on running and waiting requests sees."""
    return len(fleet.queue) + sum(replica.answering for replica in fleet.replicas)


@dataclass
class Keda:
    """Between `least` and `most`."""

    value: Callable[[Fleet], int]
    threshold: float
    least: int
    most: int
    every_s: float = 15.0
    _wished: deque[tuple[float, int]] = field(default_factory=deque)

    TOLERANCE = 0.1
    DOWN_WINDOW_S = 300.0

    def count(self, fleet: Fleet) -> int:
        current = len(fleet.staying)
        wanted = self._wanted(fleet, current)
        self._wished.append((fleet.now, wanted))
        while self._wished[0][0] <= fleet.now - self.DOWN_WINDOW_S:
            self._wished.popleft()
        steady = wanted if wanted >= current else min(current, max(count for _, count in self._wished))
        fastest = max(current + 4, 2 * current)
        return min(max(self.least, min(steady, fastest)), self.most)

    def _wanted(self, fleet: Fleet, current: int) -> int:
        value = self.value(fleet)
        if current and abs(value / (self.threshold * current) - 1) <= self.TOLERANCE:
            return current
        return min(max(self.least, math.ceil(value / self.threshold)), self.most)
