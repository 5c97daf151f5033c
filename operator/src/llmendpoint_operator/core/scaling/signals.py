"""The number of replicas that each signal recommends. It depends on totals alone: the same load gives the
same number however the replicas share it, so the count does not oscillate under a constant load.

| signal | recommends |
|---|---|
| queueDepth | the serving replicas plus one for each `target` waiting requests; fewer only if all requests fit into 80 % of the remaining replicas' sequences |
| concurrency | requests / target |
| kvCacheUtilization | memory in use, in replicas / target; an unknown replica counts as empty when scaling up and as full when scaling down |
| ttft | one more while the first token is late and requests share replicas; after that, fewer requests per replica than at that time |

concurrency and kvCacheUtilization keep the count within 10 % of their target, as a HorizontalPodAutoscaler
does.
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
"""The share of the remaining replicas' sequences that may be filled: 80 %, as a fraction of integers."""

ENOUGH_REQUESTS = 20
"""Minimum for a 95th percentile: with fewer requests it is just the slowest one."""

DEFAULT_SIGNALS = SignalsSpec(queue_depth=QueueDepthSignal(target=4))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`said`: the figures behind it. `lowers`: whether enough is known to go below the present count."""

    replicas: int
    said: str
    lowers: bool = True


def recommend(scene: Scene, demand: Demand, crowd: Crowd | None = None) -> list[Recommendation]:
    """One recommendation per signal in the spec. `crowd`: the load when the first token was last late."""
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
    """Replicas that are starting are in `current`; they count as already asked for."""
    waiting = demand.queued
    up = scene.serving + -(-waiting // signal.target) if waiting else 0
    said = f"queueDepth {waiting} waiting / target {signal.target}"
    said += f" + {scene.serving} ready" if waiting and scene.serving else ""
    if up > scene.current:
        return Recommendation(up, said)
    requests, sequences = demand.requests, _sequences(scene, demand)
    if requests and sequences is None:
        unknown = "the number of sequences that a replica takes is unknown"
        return Recommendation(scene.current, f"{said}; {unknown}", lowers=False)
    full, of = FULL
    fits = -(-requests * of // (full * sequences)) if sequences else 0
    needs = f"{fits} {'replica' if fits == 1 else 'replicas'} with {sequences} sequences, filled to 80 %"
    room = f"; {requests} requests need {needs}" if requests else "; 0 requests run or wait"
    return Recommendation(min(scene.current, max(up, fits)), said + room)


def concurrency(scene: Scene, demand: Demand, signal: ConcurrencySignal) -> Recommendation:
    """Uses the gateways' counts, or the engines' where those are higher."""
    wanted = demand.requests / signal.target
    said = f"concurrency {demand.requests} requests / target {signal.target}"
    return Recommendation(_tolerant(wanted, scene.current), said)


def kv_cache(scene: Scene, demand: Demand, signal: KvCacheSignal) -> Recommendation:
    """Recommends the present count while no engine reports."""
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
    """Adds one replica at a time and judges it by figures measured since. The time to the first token is not
    proportional to the load, so a count cannot be computed from it. Where it is unknown or on target, the
    other signals decide; it never lowers their result."""
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
    """The present crowd if the first token is late; else the previous one until it is too old."""
    signal = scene.spec.signals.ttft if scene.spec.signals else None
    if signal is None:
        return None
    if _late(scene, demand, signal):
        return Crowd(now, demand.requests, scene.serving)
    return None if crowd is None or crowd.fades(now) else crowd


def _late(scene: Scene, demand: Demand, signal: TtftSignal) -> bool:
    """Whether enough requests got their first token late for a reason that another replica removes. A request
    with a replica to itself is slow because of its length or the model."""
    figures = demand.first_tokens
    if figures is None or figures.requests < ENOUGH_REQUESTS:
        return False
    return figures.p95 > signal.target and demand.requests > scene.serving > 0


def _tolerant(wanted: float, current: int) -> int:
    """The present count if `wanted` is within TOLERANCE of it; else `wanted` rounded up."""
    if current and abs(wanted / current - 1) <= TOLERANCE:
        return current
    return math.ceil(wanted - 1e-9)


def _sequences(scene: Scene, demand: Demand) -> int | None:
    """Sequences in a replica's batch: the lowest that an engine reports, else the spec's; None if unknown."""
    told = [load.max_num_seqs for load in demand.loads.values() if load.max_num_seqs > 0]
    return min(told, default=scene.max_num_seqs)
