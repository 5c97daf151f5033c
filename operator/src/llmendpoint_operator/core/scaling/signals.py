"""The number of replicas that each signal recommends, from totals alone: the same load gives the same number however
it lies on the replicas, so that nothing swings under a constant load.

| signal | recommends |
|---|---|
| queueDepth | beyond the replicas that serve, one for each `target` that waits; fewer only when all fits 80 % of theirs |
| concurrency | requests / target |
| kvCacheUtilization | memory in use, in replicas / target; one that does not tell counts as empty for up, full for down |
| ttft | one more while the first token comes late and requests share replicas; then not as few as that again |

concurrency and kvCacheUtilization leave the count alone within 10 % of their target, as a HorizontalPodAutoscaler does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from ...api.autoscaling import ConcurrencySignal, KvCacheSignal, QueueDepthSignal, SignalsSpec, TtftSignal
from ..sentences import latency_text
from .crowd import Crowd
from .demand import Demand
from .scene import Scene

TOLERANCE = 0.1
FULL = (4, 5)
"""Of their sequences, what remaining replicas may be filled with: 80 %, in whole numbers."""

ENOUGH_REQUESTS = 20
"""For a 95th percentile: of fewer it is their slowest."""

DEFAULT_SIGNALS = SignalsSpec(queue_depth=QueueDepthSignal(target=4))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`said`: the figures behind it. `lowers`: whether enough is known to go below the present count."""

    replicas: int
    said: str
    lowers: bool = True


def recommend(scene: Scene, demand: Demand, crowd: Crowd | None = None) -> list[Recommendation]:
    """Of every signal that the spec names. `crowd`: when the first token was late last, where that is remembered."""
    signals = scene.spec.signals or DEFAULT_SIGNALS
    found = []
    if signals.queue_depth is not None:
        found.append(queue_depth(scene, demand, signals.queue_depth))
    if signals.concurrency is not None:
        found.append(concurrency(scene, demand, signals.concurrency))
    if signals.kv_cache_utilization is not None:
        found.append(kv_cache(scene, demand, signals.kv_cache_utilization))
    if signals.ttft is not None:
        found.append(ttft(scene, demand, signals.ttft, crowd))
    return found


def queue_depth(scene: Scene, demand: Demand, signal: QueueDepthSignal) -> Recommendation:
    """Replicas that are still starting are in `current`, and count as what was asked for already."""
    waiting = demand.queued
    up = scene.serving + -(-waiting // signal.target) if waiting else 0
    said = f"queueDepth {waiting} waiting / target {signal.target}, beyond {scene.serving} ready"
    if up > scene.current:
        return Recommendation(up, said)
    requests, sequences = demand.requests, _sequences(scene, demand)
    if requests and sequences is None:
        unknown = "the number of sequences that a replica takes is unknown"
        return Recommendation(scene.current, f"{said}; {unknown}", lowers=False)
    full, of = FULL
    fits = -(-requests * of // (full * sequences)) if sequences else 0
    room = f"; {requests} requests fit {fits} x {sequences} sequences at 80 %" if sequences else ""
    return Recommendation(min(scene.current, max(up, fits)), said + room)


def concurrency(scene: Scene, demand: Demand, signal: ConcurrencySignal) -> Recommendation:
    """From the gateways' own counts, and the engines' where they tell more."""
    wanted = demand.requests / signal.target
    said = f"concurrency {demand.requests} requests / target {signal.target}"
    return Recommendation(_tolerant(wanted, scene.current), said)


def kv_cache(scene: Scene, demand: Demand, signal: KvCacheSignal) -> Recommendation:
    """No opinion while no engine tells."""
    known = list(demand.loads.values())
    if not known and scene.current > 0:
        return Recommendation(scene.current, "kvCacheUtilization unknown", lowers=False)
    used = sum(load.kv_usage for load in known)
    missing = max(0, scene.serving - len(known))
    up = _tolerant(used / signal.target, scene.current)
    down = _tolerant((used + missing) / signal.target, scene.current)
    wanted = up if up > scene.current else min(down, scene.current)
    said = f"kvCacheUtilization {used:.2f} of {len(known)} replicas / target {signal.target:g}"
    return Recommendation(wanted, said + (f", {missing} unknown" if missing else ""))


def ttft(scene: Scene, demand: Demand, signal: TtftSignal, crowd: Crowd | None) -> Recommendation:
    """One step at a time, each judged by figures of the replicas that there are since: how long the first token takes is
    not proportional to the load, so no number can be computed from it. Whatever it does not know or ask for is the other
    signals' to decide; below them it never goes."""
    figures = demand.first_tokens
    target = latency_text(signal.target)
    said = "ttft unknown" if figures is None else f"ttft p95 {latency_text(figures.p95)} / target {target}"
    if _late(scene, demand, signal):
        all_serve = scene.serving == scene.current and not scene.loading
        return Recommendation(scene.current + all_serve, said)
    if crowd is None:
        return Recommendation(0, said)
    came = f"it missed the target with {crowd.requests} requests on {crowd.replicas} replicas"
    return Recommendation(min(scene.current, crowd.least_for(demand.requests)), f"{said}; {came}")


def remember(crowd: Crowd | None, scene: Scene, demand: Demand, now: datetime) -> Crowd | None:
    """The crowd of now, where the first token is late; else the one before, for its time."""
    signal = scene.spec.signals.ttft if scene.spec.signals else None
    if signal is None:
        return None
    if _late(scene, demand, signal):
        return Crowd(now, demand.requests, scene.serving)
    return None if crowd is None or crowd.fades(now) else crowd


def _late(scene: Scene, demand: Demand, signal: TtftSignal) -> bool:
    """Whether enough callers waited too long for a reason that another replica can take away: a request that has a
    replica to itself is slow by its length, or the model's."""
    figures = demand.first_tokens
    if figures is None or figures.requests < ENOUGH_REQUESTS:
        return False
    return figures.p95 > signal.target and demand.requests > scene.serving > 0


def _tolerant(wanted: float, current: int) -> int:
    """The count as it is, where it is near enough."""
    if current and abs(wanted / current - 1) <= TOLERANCE:
        return current
    return math.ceil(wanted - 1e-9)


def _sequences(scene: Scene, demand: Demand) -> int | None:
    """What one replica takes in one batch: the least that an engine tells, else what the spec says."""
    told = [load.max_num_seqs for load in demand.loads.values() if load.max_num_seqs > 0]
    return min(told, default=scene.max_num_seqs)
