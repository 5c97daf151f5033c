"""Requests of one day: a quiet night, two peaks, and bursts that nobody announced."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY_S = 86_400.0
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: its moment in seconds after midnight, and the tokens of its answer."""

    at: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests per second at night and at the peaks; bursts that multiply them, and the answers' lengths."""

    night: float = 0.6
    peak: float = 6.0
    bursts: int = 24
    factor: tuple[float, float] = (1.8, 3.5)
    lasts_s: tuple[float, float] = (60.0, 600.0)
    tokens: float = 150.0
    """The median; lengths are lognormal with a sigma of 0.8."""


def arrivals(shape: Shape, seed: int) -> Iterator[Arrival]:
    """In order. A Poisson process whose rate moves, by thinning: candidates at the highest rate, each kept with the share
    that its moment has of it."""
    draws = random.Random(f"day/{seed}")
    bursts = [_burst(shape, draws) for _ in range(shape.bursts)]
    highest = shape.peak * max(shape.factor) ** 2
    now = 0.0
    while (now := now + draws.expovariate(highest)) < DAY_S:
        rate = min(
            highest, _base(shape, now) * math.prod(f for start, end, f in bursts if start <= now < end)
        )
        if draws.random() * highest < rate:
            yield Arrival(now, max(1, round(draws.lognormvariate(math.log(shape.tokens), 0.8))))


def _burst(shape: Shape, draws: random.Random) -> tuple[float, float, float]:
    """Begin, end and factor."""
    start = draws.uniform(0, DAY_S)
    return start, start + draws.uniform(*shape.lasts_s), draws.uniform(*shape.factor)


def _base(shape: Shape, now: float) -> float:
    """Two bells, at 10 and at 15 o'clock, over the night's rate."""
    hour = now / HOUR_S
    bells = math.exp(-(((hour - 10) / 2.2) ** 2)) + 0.85 * math.exp(-(((hour - 15.5) / 2.8) ** 2))
    return shape.night + (shape.peak - shape.night) * min(1.0, bells)
