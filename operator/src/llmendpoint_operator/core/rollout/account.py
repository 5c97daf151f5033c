"""The account of an observation, as it stands in the status: what was counted, the evidence, and what is expected.

The counts survive a restart of the operator: the next one adds what it counts itself. What came between the last account
and the restart is missing on both sides, so it changes no verdict.

An account is written again when a tenth or more was added to the time observed, and not more often than every
FIRST_SECONDS: a long observation costs few writes. Many observations at once share WRITES_PER_S.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from llmendpoint_verdicts.shares import pooled

from ..sentences import fitting
from ..times import parse_time, time_text
from .evidence import Figures
from .tails import Tail
from .written import figures_json, parse_figures, present

FIRST_SECONDS = 10.0
GROWTH = 0.1
WRITES_PER_S = 10.0
"""Of all endpoints together, after the first account of each."""
MOST_POINTS = 32
"""Of the history. Where there are more, every second one is dropped."""
MOST_SECONDS = 1e7


@dataclass(frozen=True, slots=True)
class LimitAccount:
    """About one limit, which the spec names `field`. `broken`, `kept`: shares (0..1) of the evidence that a rollback, or a
    good verdict, needs. `said`: the figures in words."""

    field: str
    broken: float
    kept: float
    said: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """After so many seconds: the limit that is nearest to being broken, and the one that is farthest from being shown."""

    seconds: float
    broken: float
    kept: float


@dataclass(frozen=True, slots=True)
class Account:
    """Of the window that the status describes. `green`: with `seconds`, the time observed. `blue`: the old revision's figures
    of the same seconds, where it gets requests. `requests`, `wait`: how many requests of green a verdict takes in all, and
    in how many seconds it comes; None where that cannot be said. `late`: what to change where that is after maxDuration."""

    at: datetime
    green: Figures
    blue: Figures | None = None
    limits: tuple[LimitAccount, ...] = ()
    history: tuple[Point, ...] = ()
    requests: int | None = None
    wait: float | None = None
    late: str = ""

    @property
    def seconds(self) -> float:
        """Time observed."""
        return self.green.seconds or 0.0

    @property
    def line(self) -> str:
        """How far the verdict is, in words."""
        if self.requests is None or self.wait is None:
            return f"{self.green.requests} requests so far"
        return f"{self.green.requests} of about {self.requests} requests, about {self.wait:.0f} s"

    def as_json(self) -> dict[str, Any]:
        """The JSON form."""
        return present(
            {
                **(figures_json(self.green) or {}),
                "at": time_text(self.at),
                "seconds": round(self.seconds, 1),
                "expectedRequests": self.requests,
                "expectedSeconds": None if self.wait is None else round(self.wait, 1),
                "late": fitting(self.late) if self.late else None,
                "limits": [
                    {"field": one.field, "broken": one.broken, "kept": one.kept, "said": fitting(one.said)}
                    for one in self.limits
                ],
                "history": [
                    {"seconds": one.seconds, "broken": one.broken, "kept": one.kept} for one in self.history
                ],
                "old": figures_json(self.blue),
            }
        )


def parse_account(found: Mapping[str, Any] | None) -> Account | None:
    """None for what no operator wrote: then the observation is counted from its beginning again."""
    try:
        if found is None or (green := parse_figures(found)) is None:
            return None
        at, seconds = parse_time(found["at"]), float(found["seconds"])
        if at is None or not 0 <= seconds <= MOST_SECONDS:
            return None
        limits = tuple(
            LimitAccount(str(one["field"]), float(one["broken"]), float(one["kept"]), str(one["said"]))
            for one in found.get("limits", ())
        )
        history = tuple(
            Point(float(one["seconds"]), float(one["broken"]), float(one["kept"]))
            for one in found.get("history", ())
        )
        requests, wait = _expected(found, "expectedRequests"), _expected(found, "expectedSeconds")
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return Account(
        at,
        replace(green, seconds=seconds),
        parse_figures(found.get("old")),
        limits,
        history[-MOST_POINTS:],
        None if requests is None else int(requests),
        wait,
        str(found.get("late") or ""),
    )


def _expected(found: Mapping[str, Any], name: str) -> float | None:
    """Raises what the value raises. None where it is none that an operator writes."""
    if found.get(name) is None:
        return None
    number = float(found[name])
    return number if 0 <= number <= MOST_SECONDS else None


def due_in(before: Account | None, figures: Figures, now: datetime, endpoints: int) -> float | None:
    """Seconds until the account in the status is to be written again; None while there is nothing new. `endpoints`: how many
    are measured at once."""
    if figures.requests == (before.green.requests if before is not None else 0):
        return None
    if before is None:
        return 0.0
    pause = max(FIRST_SECONDS, GROWTH * before.seconds, endpoints / WRITES_PER_S)
    passed = (now - before.at).total_seconds()
    return pause - passed if 0 <= passed < pause else 0.0


def with_point(history: tuple[Point, ...], point: Point) -> tuple[Point, ...]:
    """At most MOST_POINTS, evenly over the whole observation; one for each moment."""
    points = (*(one for one in history if one.seconds < point.seconds), point)
    return points if len(points) <= MOST_POINTS else (*points[1:-1:2], point)


def joined(before: Figures, after: Figures | None) -> Figures:
    """Two parts of one window. How much they clump is that of their requests, weighed by their number."""
    if after is None:
        return before
    failed = pooled(before.failed, after.failed)
    return Figures(
        before.requests + after.requests,
        before.errors + after.errors,
        _joined_tails(before.ttft, after.ttft),
        _joined_tails(before.itl, after.itl),
        _joined_tails(before.e2e, after.e2e),
        failed.clumping,
        (before.seconds or 0.0) + (after.seconds or 0.0),
        worst=after.worst,
    )


def _joined_tails(before: Tail | None, after: Tail | None) -> Tail | None:
    """At the bounds that both have. One that had none of its requests measured adds nothing."""
    if before is None or after is None:
        return after or before
    places = [
        (index, after.bounds.index(bound))
        for index, bound in enumerate(before.bounds)
        if bound in after.bounds
    ]
    shares = [pooled(before.at(old), after.at(new)) for old, new in places]
    if not shares:
        return after
    return Tail(
        shares[0].requests,
        tuple(before.bounds[old] for old, _ in places),
        tuple(share.hits for share in shares),
        tuple(share.clumping for share in shares),
    )
