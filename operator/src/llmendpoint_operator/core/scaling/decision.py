"""The decision on the count for one moment.

| what is known | what follows |
|---|---|
| the time of the next poll has not come, and nobody waits for a first replica | the count within the bounds |
| nothing, for fewer polls than failureThreshold | no change |
| nothing, for longer | `fallback`, or no change |
| somebody calls an idle endpoint | at once as many replicas as the signals recommend, one at least |
| nobody has called for cooldownPeriod, and whoever does will be held and seen | idleReplicas |
| a part: some gateways are silent, or an engine does not tell | up as recommended, not down |
| all | the largest recommendation, smoothed |

Nothing is lowered while a replica loads, but for a lower maxReplicas.
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
"""Without `fallback`: polls without any figure after which the scaler calls itself blind."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`outlook` is None while nothing new is known of it."""

    replicas: int
    memory: Memory
    change: Change | None = None
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A count, and why."""

    replicas: int
    reason: Reason
    message: str


def decide(scene: Scene, memory: Memory, now: datetime) -> Decision:
    """`scene.demand` is None when nobody told anything. The same scene at the same moment gives the same decision."""
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
    """Whether somebody calls an endpoint that is idle: that waits for no poll."""
    return bounds.sleeps and scene.current < bounds.awake and scene.called


def _unseen(scene: Scene, memory: Memory, bounds: Bounds, now: datetime, due: bool) -> Decision:
    """Between two polls, or without figures: only the bounds, and the fallback when it is time."""
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
    """Whether every signal and every gateway told enough to go down."""
    return not demand.partial and all(recommendation.lowers for recommendation in found)


def _follow(
    scene: Scene, memory: Memory, bounds: Bounds, best: Recommendation, lowers: bool, now: datetime
) -> tuple[_Wish, Memory]:
    """Idle or awake, and then by the signals."""
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
    said = f"{best.said}: {best.replicas}"
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
    """Within the bounds, and nothing that loads is taken."""
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
    if target > scene.current:  # whatever raised it, it stays for the window
        memory = replace(memory, recommendations=(*memory.recommendations, (now, target)))
    return Decision(target, memory, Change(scene.current, target, reason, message, now), outlook)


def _outlook(scene: Scene, bounds: Bounds, asked: int, demand: Demand, count: int) -> Outlook:
    """How it fares, without figures that move."""
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
