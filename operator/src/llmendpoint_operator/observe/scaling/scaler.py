"""The builtin scaler: keeps each endpoint's memory, runs the pure decision when a poll is due, and wakes the
endpoint if the result changed. A poll that changes nothing causes no reconciliation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from ...api.autoscaling import Provider
from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.scaling.bounds import find_bounds, may_sleep
from ...core.scaling.decision import Decision, decide, wakes
from ...core.scaling.outcome import Change, Reason, Scaling
from ...core.scaling.records import first_memory, present_count, read_outlook
from ...core.scaling.scene import Memory, Scene, read_scene
from ...metrics import Metrics
from .demand import Demands

log = structlog.get_logger()


TICK_S = 0.5
"""Seconds between checks whether a poll is due."""


@dataclass(slots=True)
class _Scaled:
    """The state of one endpoint. `asked`: the last seen spec.replicas."""

    scene: Scene
    memory: Memory
    asked: int
    scaling: Scaling


class Scaler:
    """The leader's scaler. `demands` returns an endpoint's known demand; `wake` queues an endpoint."""

    def __init__(self, demands: Demands, wake: Callable[[Key], None], metrics: Metrics) -> None:
        self._demands = demands
        self._wake = wake
        self._metrics = metrics
        self._scaled: dict[Key, _Scaled] = {}

    def of(self, key: Key) -> Scaling | None:
        """The present result; None if the builtin scaler does not scale this endpoint."""
        one = self._scaled.get(key)
        return one.scaling if one is not None else None

    def update(self, snapshot: Snapshot) -> None:
        """Decide anew for this snapshot."""
        endpoint = snapshot.endpoint
        key, spec = (endpoint.namespace, endpoint.name), endpoint.spec
        rules = spec.autoscaling if spec and not endpoint.deleting else None
        if spec is None or rules is None or rules.provider is not Provider.BUILTIN:
            self._scaled.pop(key, None)
            if rules is not None and rules.provider is not Provider.NONE:
                self._demands.follow(snapshot)  # the outside scaler gets reports
            else:
                self._demands.forget(key)
            return
        self._demands.follow(snapshot)
        now = datetime.now(UTC)
        one = self._scaled.get(key)
        if one is None:
            one = self._scaled[key] = _begin(snapshot, read_scene(snapshot, rules, 0, now), now)
        elif one.asked != spec.replicas:
            _set_by_hand(one, spec.replicas, now)
        one.scene = read_scene(snapshot, rules, one.scaling.replicas, now)
        self._decide(key, one, now)

    def forget(self, key: Key) -> None:
        """Drop an endpoint that is deleted."""
        self._demands.forget(key)
        self._scaled.pop(key, None)

    def heard(self, key: Key) -> None:
        """To be called when a gateway reported something new. An idle endpoint with requests is scaled up
        without waiting for a poll."""
        one = self._scaled.get(key)
        if one is None or not may_sleep(one.scene.spec):
            return
        now, scene = datetime.now(UTC), replace(one.scene, demand=self._demands.of(key))
        if wakes(scene, find_bounds(scene.spec, now)):
            self._decide_and_wake(key, one, now)
        elif scene.called:
            one.memory = replace(one.memory, active_at=now)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            now = datetime.now(UTC)
            for key, one in list(self._scaled.items()):
                if (now - one.memory.polled_at).total_seconds() >= one.scene.spec.polling_interval:
                    self._decide_and_wake(key, one, now)

    def _decide_and_wake(self, key: Key, one: _Scaled, now: datetime) -> None:
        before = one.scaling
        try:
            self._decide(key, one, now)
        except Exception:  # any: this endpoint keeps its count, and its reconciliation reports the error
            one.memory = replace(one.memory, polled_at=now)
            log.exception("scaling decision failed", endpoint="/".join(key))
            self._wake(key)
        if (one.scaling.replicas, one.scaling.outlook) != (before.replicas, before.outlook):
            self._wake(key)

    def _decide(self, key: Key, one: _Scaled, now: datetime) -> None:
        scene = replace(one.scene, current=one.scaling.replicas, demand=self._demands.of(key))
        found: Decision = decide(scene, one.memory, now)
        one.memory = found.memory
        if found.change is not None:
            self._count(found.change)
        one.scaling = Scaling(
            found.replicas, found.change or one.scaling.change, found.outlook or one.scaling.outlook
        )

    def _count(self, change: Change) -> None:
        direction = "up" if change.after > change.before else "down"
        self._metrics.scalings.labels(direction, str(change.reason)).inc()


def _begin(snapshot: Snapshot, scene: Scene, now: datetime) -> _Scaled:
    """Continue from the status."""
    assert snapshot.endpoint.spec is not None
    live, asked = snapshot.endpoint.status.get("autoscaling") or {}, snapshot.endpoint.spec.replicas
    current, change = present_count(snapshot), None
    if live and live["desiredReplicas"] != current:
        change = _by_hand(int(live["desiredReplicas"]), current, now)
    scaling = Scaling(current, change, read_outlook(snapshot.endpoint.status))
    return _Scaled(scene, first_memory(live, current, now), asked, scaling)


def _set_by_hand(one: _Scaled, asked: int, now: datetime) -> None:
    """A user set this count. It holds as long as the smoothing remembers a recommendation."""
    before, one.asked = one.scaling.replicas, asked
    one.memory = replace(one.memory, active_at=now, recommendations=((now, asked),))
    change = _by_hand(before, asked, now) if before != asked else None
    one.scaling = Scaling(asked, change, one.scaling.outlook)


def _by_hand(before: int, asked: int, now: datetime) -> Change:
    said = f"spec.replicas was set to {asked}; the scaler continues from there"
    return Change(before, asked, Reason.BY_HAND, said, now)
