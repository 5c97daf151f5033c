"""Smooths the count in both directions, with the rules of a HorizontalPodAutoscaler.

A stabilization window takes its most cautious recommendation: the smallest before going up, the largest
before going down. Policies limit how far the count may move from its value one period ago.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from ...api.autoscaling import BehaviorSpec, ScalingRules

UP_WINDOW_S = 0
DOWN_WINDOW_S = 300

Series = tuple[tuple[datetime, int], ...]
"""Moments and counts, oldest first."""


def windows(behavior: BehaviorSpec) -> tuple[int, int]:
    """Seconds of the up and the down window."""
    up, down = (
        rules.stabilization_window_seconds for rules in (behavior.scale_up, behavior.scale_down)
    )  # fmt: skip
    return (UP_WINDOW_S if up is None else up), (DOWN_WINDOW_S if down is None else down)


def stabilize(behavior: BehaviorSpec, current: int, recommendations: Series, now: datetime) -> int:
    """The count after both windows. `recommendations` ends with the present one."""
    up_window, down_window = windows(behavior)
    lowest = min(_within(recommendations, up_window, now))
    highest = max(_within(recommendations, down_window, now))
    return min(max(current, lowest), highest)


def limit_rate(behavior: BehaviorSpec, current: int, wanted: int, changes: Series, now: datetime) -> int:
    """The count after the policies. `changes` are past differences of the count."""
    if wanted > current:
        return min(wanted, max(current, _furthest(behavior.scale_up, current, changes, now, 1)))
    if wanted < current:
        return max(wanted, min(current, _furthest(behavior.scale_down, current, changes, now, -1)))
    return current


def keep(series: Series, seconds: float, now: datetime) -> Series:
    """The part of the series that a window or period still reaches."""
    return tuple(item for item in series if item[0] >= now - timedelta(seconds=seconds))


def longest(behavior: BehaviorSpec) -> int:
    """Seconds that the longest window or period lasts."""
    periods = [p.period_seconds for r in (behavior.scale_up, behavior.scale_down) for p in r.policies]
    return max(*windows(behavior), *periods, 0)


def _within(series: Series, seconds: int, now: datetime) -> Iterable[int]:
    """The counts within the window, always with the last one."""
    recent = (count for moment, count in series[:-1] if moment > now - timedelta(seconds=seconds))
    return [*recent, series[-1][1]]


def _furthest(rules: ScalingRules, current: int, changes: Series, now: datetime, sign: int) -> int:
    """The farthest count that the policies permit."""
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        recent = (
            delta for moment, delta in changes if moment > now - timedelta(seconds=policy.period_seconds)
        )
        start = current - sum(recent)
        share = policy.value if policy.type == "Pods" else start * policy.value / 100
        limits.append(start + sign * share)
    if not limits:
        return 1000 if sign > 0 else 0
    outer, inner = (max, min) if sign > 0 else (min, max)
    furthest = (outer if rules.select_policy == "Max" else inner)(limits)
    return math.ceil(furthest) if sign > 0 else math.floor(furthest)
