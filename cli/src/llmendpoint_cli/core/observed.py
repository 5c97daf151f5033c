"""What the operator has seen of a revision that it observes, in words: how far the verdict is, and its evidence.

The figures are those of `status.rollout.observation`. An operator of an earlier release writes none: then nothing is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from .names import OBSERVING
from .objects import Object, rollout_of

BLOCKS, ASCII = "▁▂▃▄▅▆▇█", "_.,-=+*#"
"""From nothing to all, for terminals that can show them and for others."""
POINTS = 16
"""At most so many in a sparkline."""
NEWS, NEWS_SECONDS = 0.1, 10
"""What a reader wants to hear of again: a tenth of the evidence, or that ten seconds have passed."""


def observation_of(endpoint: Object) -> Object | None:
    """The observation; None if nothing is observed now, or if the operator does not write it."""
    rollout = rollout_of(endpoint)
    found: Object | None = rollout.get("observation") if rollout.get("state") == OBSERVING else None
    return found or None


def is_news(now: Object | None, before: Object | None) -> bool:
    """Whether a reader to whom `before` was shown wants to see `now`."""
    if now is None or before is None:
        return now is not before
    passed = _number(now, "seconds") - _number(before, "seconds")
    moved = max(abs(a - b) for a, b in zip(evidence_of(now), evidence_of(before), strict=True))
    return passed < 0 or passed >= NEWS_SECONDS or moved >= NEWS


def evidence_of(observation: Object) -> tuple[float, float]:
    """Of what a rollback needs, that for the limit that is most likely broken; of what a confirmation needs, that for the
    limit that is least known to be kept. Both 0..1."""
    limits: Sequence[Object] = observation.get("limits") or ()
    return max((_number(one, "broken") for one in limits), default=0.0), min(
        (_number(one, "kept") for one in limits), default=0.0
    )


def requests_text(observation: Object) -> str:
    """`312 of about 480 requests, about 40 s left`."""
    requests, expected = int(_number(observation, "requests")), observation.get("expectedRequests")
    counted = f"{requests:,}" if expected is None else f"{requests:,} of about {int(expected):,}"
    left = observation.get("expectedSeconds")
    return f"{counted} requests" + ("" if left is None else f", about {float(left):.0f} s left")


def observation_lines(observation: Object, symbols: str = BLOCKS) -> tuple[str, ...]:
    """`312 of about 480 requests, about 40 s left; evidence …`, then a line for each limit."""
    parts = [requests_text(observation)]
    if observation.get("limits"):
        history: Sequence[Object] = observation.get("history") or ()
        broken, kept = evidence_of(observation)
        parts.append(
            f"evidence to roll back {broken:.0%}{_sparkline(history, 'broken', symbols)}, "
            f"to confirm {kept:.0%}{_sparkline(history, 'kept', symbols)}"
        )
    said = [str(one["said"]) for one in observation.get("limits") or () if one.get("said")]
    return "; ".join(parts), *said


def _sparkline(history: Sequence[Object], key: str, symbols: str) -> str:
    """One symbol for a moment, the last one at the end; empty without a course that could be seen."""
    values = [min(1.0, max(0.0, _number(point, key))) for point in history]
    if len(values) < 2:
        return ""
    step = max(1, -(-len(values) // POINTS))
    shown = values[::-step][::-1]
    return " " + "".join(symbols[min(len(symbols) - 1, int(value * len(symbols)))] for value in shown)


def _number(thing: Object, key: str) -> float:
    return float(thing.get(key) or 0)
