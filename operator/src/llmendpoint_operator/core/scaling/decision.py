"""The decision on the count for one moment.

| state | result |
|---|---|
| the next poll is not due, and no request waits for a first replica | the present count, within the bounds |
| load unknown, for fewer polls than failureThreshold | no change |
| load unknown, for longer | `fallback`, or no change |
| an idle endpoint gets requests | at once as many replicas as the signals recommend, at least one |
| no request for cooldownPeriod, and the gateways would hold and report a new one | idleReplicas |
| load known in part: a gateway or an engine does not report | up as recommended, never down |
| load known | the largest recommendation, smoothed |

While a replica loads, the count is lowered only to satisfy a lower maxReplicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from ...api.autoscaling import FallbackSpec
from .bounds import Bounds, find_bounds
from .demand import Demand
from .outcome import Change, Outlook, Reason
from .scene import Memory, Scene
from .signals import Recommendation, recommend, remember
from .smoothing import keep, limit_rate, longest, stabilize

FAILURE_THRESHOLD = 3
"""Polls without any figure after which the scaler reports itself blind; used if there is no `fallback`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`outlook` is None if nothing new is known about the scaler's state."""

    replicas: int
    memory: Memory
    change: Change | None = None
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A count, and the reason for it."""

    replicas: int
    reason: Reason
    message: str


def decide(scene: Scene, memory: Memory, now: datetime) -> Decision:
    """`scene.demand` is None if the load is unknown. The decision depends only on the arguments."""
    bounds = find_bounds(scene.spec, now)
    if scene.called:
        memory = replace(memory, active_at=now)
    due = (now - memory.polled_at).total_seconds() >= scene.spec.polling_interval
    if scene.demand is None or not (due or wakes(scene, bounds)):
        return _unseen(scene, memory, bounds, now, due)
    memory = replace(memory, polled_at=now, failures=0)
    demand = scene.demand.only(scene.ready)
    memory = replace(memory, crowd=remember(memory.crowd, scene, demand, now))
    found = recommend(scene, demand, memory.crowd)
    best = max(found, key=lambda recommendation: recommendation.replicas)
    wish, memory = _follow(scene, memory, bounds, best, _lowers(found, demand), now)
    outlook = _outlook(scene, bounds, best.replicas, demand, wish.replicas)
    return _conclude(scene, memory, bounds, wish, outlook, now)


def wakes(scene: Scene, bounds: Bounds) -> bool:
    """Whether an idle endpoint gets requests. It is then scaled up without waiting for the next poll."""
    return bounds.sleeps and scene.current < bounds.awake and scene.called


def _unseen(scene: Scene, memory: Memory, bounds: Bounds, now: datetime, due: bool) -> Decision:
    """The decision between two polls, or without figures: the bounds, and the fallback when it is due."""
    wish = _Wish(scene.current, Reason.BOUNDS, "")
    if not due:
        return _conclude(scene, memory, bounds, wish, None, now)
    failures = memory.failures + 1
    memory = replace(memory, polled_at=now, failures=failures)
    fallback = scene.spec.fallback
    threshold = fallback.failure_threshold if fallback else FAILURE_THRESHOLD
    if failures < threshold:
        return _conclude(scene, memory, bounds, wish, None, now)
    missing = f"no load figures arrived for {threshold} polls or more"
    blind = f"{missing}; see the gateways' logs, and check that the operator reaches their port 8081"
    if fallback is None:
        said = f"{missing}; the number of replicas changes only to stay within its bounds"
        return _conclude(scene, memory, bounds, wish, Outlook(False, "NoFigures", said, blind), now)
    said = f"{missing}; spec.autoscaling.fallback applies"
    wish = _Wish(_fallback(scene.current, fallback), Reason.FALLBACK, said)
    return _conclude(scene, memory, bounds, wish, Outlook(False, "Fallback", said, blind), now)


def _fallback(current: int, fallback: FallbackSpec) -> int:
    match fallback.behavior:
        case "static":
            return fallback.replicas
        case "currentReplicas":
            return current
        case "currentReplicasIfHigher":
            return max(current, fallback.replicas)
        case "currentReplicasIfLower":
            return min(current, fallback.replicas)


def _lowers(found: list[Recommendation], demand: Demand) -> bool:
    """Whether every signal and every gateway reported enough to lower the count."""
    return not demand.partial and all(recommendation.lowers for recommendation in found)


def _follow(
    scene: Scene, memory: Memory, bounds: Bounds, best: Recommendation, lowers: bool, now: datetime
) -> tuple[_Wish, Memory]:
    """The idle count, or the count that the signals recommend."""
    called = scene.called
    if bounds.sleeps and scene.unheard:
        rested = (now - memory.active_at).total_seconds() >= scene.spec.cooldown_period
        if scene.current <= bounds.idle or (rested and scene.complete):
            said = f"no request for {scene.spec.cooldown_period} s (spec.autoscaling.cooldownPeriod)"
            return _Wish(bounds.idle, Reason.IDLE, said), memory
    wanted = best.replicas if lowers else max(best.replicas, scene.current)
    bounded = min(max(wanted, bounds.awake), bounds.most)
    recommendations = keep(memory.recommendations, longest(scene.spec.behavior), now)
    memory = replace(memory, recommendations=(*recommendations, (now, bounded)))
    said = f"{best.said}; recommended: {best.replicas}"
    if wanted != bounded:
        said += f"; bounds are {bounds.awake} to {bounds.most}"
    if scene.current < bounds.awake:
        return _Wish(bounded, Reason.ACTIVATED if called else Reason.BOUNDS, said), memory
    behavior = scene.spec.behavior
    steady = stabilize(behavior, scene.current, memory.recommendations, now)
    limited = limit_rate(behavior, scene.current, steady, memory.changes, now)
    if limited != bounded:
        said += f"; spec.autoscaling.behavior allows {limited} now"
    return _Wish(limited, Reason.SIGNALS, said), memory


def _conclude(
    scene: Scene, memory: Memory, bounds: Bounds, wish: _Wish, outlook: Outlook | None, now: datetime
) -> Decision:
    """The decision within the bounds. No replica is removed while one is loading."""
    target = bounds.clamp(wish.replicas)
    if target < scene.current and (scene.loading or not scene.served):
        target = min(scene.current, bounds.most)
    if target == scene.current:
        return Decision(target, memory, outlook=outlook)
    reason, message = wish.reason, wish.message
    if wish.replicas == scene.current or not message:
        reason = Reason.BOUNDS
        schedules = f", by schedule {', '.join(bounds.schedules)}" if bounds.schedules else ""
        message = f"bounds are {bounds.least} to {bounds.most}{schedules}"
    changes = keep(memory.changes, longest(scene.spec.behavior), now)
    memory = replace(memory, changes=(*changes, (now, target - scene.current)))
    if target > scene.current:  # whatever the reason, the down window then keeps it
        memory = replace(memory, recommendations=(*memory.recommendations, (now, target)))
    return Decision(target, memory, Change(scene.current, target, reason, message, now), outlook)


def _outlook(scene: Scene, bounds: Bounds, asked: int, demand: Demand, count: int) -> Outlook:
    """The scaler's state, without figures that change by themselves."""
    silent = f"no figures from {', '.join(demand.silent)}" if demand.silent else ""
    if bounds.problem:
        return Outlook(False, "ScheduleInvalid", f"{bounds.problem}; the other bounds apply", silent, True)
    if bounds.sleeps and count <= bounds.idle:
        return Outlook(
            True, "Idle", "the endpoint gets no requests; the next request starts a replica", silent, True
        )
    between = f"{bounds.least} to {bounds.most} replicas"
    if bounds.schedules:
        between += f", by schedule {', '.join(bounds.schedules)}"
    if asked > bounds.most:
        said = (
            f"the signals ask for more than the bounds allow ({between}); raise spec.autoscaling.maxReplicas"
        )
        return Outlook(True, "AtMaximum", said, silent, True)
    return Outlook(True, "FollowingSignals", f"{between}", silent, True)
