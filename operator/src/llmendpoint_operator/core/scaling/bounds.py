"""The present minimum and maximum of replicas: those of the spec, or of the schedules that are active now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from ...api.autoscaling import AutoscalingSpec, Schedule
from .cron import CronError, parse_cron


@dataclass(frozen=True, slots=True)
class Bounds:
    """`idle`: the count without requests. `schedules`: names of the active ones. `problem`: which cannot be
    read."""

    least: int
    most: int
    idle: int
    schedules: tuple[str, ...] = ()
    problem: str = ""

    @property
    def awake(self) -> int:
        """The minimum while there are requests."""
        return max(1, self.least)

    @property
    def sleeps(self) -> bool:
        """Whether the count without requests is lower."""
        return self.idle < self.awake

    def clamp(self, count: int) -> int:
        """The count within the bounds. Counts from `idle` to `least` pass: the caller decides on idling."""
        return max(min(self.least, self.idle), min(count, self.most))


def find_bounds(spec: AutoscalingSpec, now: datetime) -> Bounds:
    """The bounds at `now` (with a time zone). An invalid schedule is not active."""
    holding, problems = [], []
    for schedule in spec.schedules:
        try:
            if _holds(schedule, now):
                holding.append(schedule)
        except CronError as error:
            problems.append(f"autoscaling.schedules[{schedule.name}]: {error}")
    least = _largest((s.min_replicas for s in holding), spec.min_replicas)
    most = max(_largest((s.max_replicas for s in holding), spec.max_replicas), least)
    warm = any(s.min_replicas is not None for s in holding)
    idle = least if warm or spec.idle_replicas is None else spec.idle_replicas
    return Bounds(least, most, idle, tuple(s.name for s in holding), "; ".join(problems))


def may_sleep(spec: AutoscalingSpec) -> bool:
    """Whether the count without requests is lower at any time."""
    return spec.idle_replicas is not None or 0 in (
        spec.min_replicas,
        *(s.min_replicas for s in spec.schedules),
    )


def _largest(counts: Iterable[int | None], otherwise: int) -> int:
    return max((count for count in counts if count is not None), default=otherwise)


def _holds(schedule: Schedule, now: datetime) -> bool:
    """Whether the schedule is active: its last start is later than its last end."""
    try:
        zone = ZoneInfo(schedule.time_zone)
    except (KeyError, ValueError, OSError):
        raise CronError(
            f"timeZone '{schedule.time_zone}' is not known; write for example Europe/Berlin"
        ) from None
    there = now.astimezone(zone)
    began, ended = parse_cron(schedule.start).last(there), parse_cron(schedule.end).last(there)
    for field, found in (("start", began), ("end", ended)):
        if found is None:
            raise CronError(f"{field}: no day matches it")
    return began is not None and ended is not None and began > ended
