"""The requests of a simulated rollout that ended in each second, of both revisions; the same for every rule that looks.

Drawn with numpy for all seconds at once: arrivals are Poisson, and no request is an object.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmendpoint_operator.observe.rollout.intervals import INTERVAL_S as SECONDS
from llmendpoint_server.api.histograms import FIRST_TOKEN_BUCKETS
from tests.bench.verdicts.settings import Fault, Setting, Spells, Traffic

EDGES = (*map(float, FIRST_TOKEN_BUCKETS), math.inf)
"""Upper bounds of the server's histogram of times to the first token, in seconds."""
INTERVAL_S = int(SECONDS)
"""In which blue is counted at rest."""
P95_SIGMAS = 1.6448536269514722
"""A normal distribution's 95th percentile."""

REST = 1_000
"""The stream of draws for the hours before a rollout; each window has two below that."""
LEVELS = 64
"""Of an unsteady service, before it begins anew."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tally:
    """What ended within some seconds. `ttft`: shape (len(EDGES),), how many first tokens came within each edge; a request
    that failed has none."""

    requests: int
    failed: int
    ttft: Ints


@dataclass(frozen=True, slots=True)
class Track:
    """One revision. Counts since the track's begin, at the end of each second: shape (seconds + 1,), the first is 0;
    `ttft` has shape (seconds + 1, len(EDGES))."""

    requests: Ints
    failed: Ints
    ttft: Ints

    @property
    def seconds(self) -> int:
        return len(self.requests) - 1

    def between(self, start: int, end: int) -> Tally:
        """In the seconds from `start` to `end`."""
        return Tally(
            int(self.requests[end] - self.requests[start]),
            int(self.failed[end] - self.failed[start]),
            self.ttft[end] - self.ttft[start],
        )


class Rollout:
    """Number `number` of a setting's rollouts. Windows are drawn when a rule comes to them."""

    def __init__(self, setting: Setting, number: int, seed: int = 0) -> None:
        self.setting = setting
        self._key = (seed, zlib.crc32(setting.name.encode()), number)
        self._phase = float(self._draws(0).random())
        self._windows: dict[int, tuple[Track, Track]] = {}
        self.before = self._track(1, -setting.before, setting.before, 1.0)
        """Blue's, until the switch."""
        self.rest = self._rest()
        """Blue's in each ten minutes of the hours before that, where a limit compares with them."""

    def _rest(self) -> tuple[Tally, ...]:
        limits = self.setting.limits
        if limits.increase is None and limits.ttft_ratio is None:
            return ()
        begin = -self.setting.before - self.setting.rest
        track = self._track(REST, begin, self.setting.rest, 1.0)
        moments = range(0, self.setting.rest - INTERVAL_S + 1, INTERVAL_S)
        return tuple(track.between(at, at + INTERVAL_S) for at in moments)

    def window(self, index: int) -> tuple[Track, Track]:
        """Green and blue, from the begin of this step for as long as it may last."""
        if index not in self._windows:
            setting, begin = self.setting, index * self.setting.limits.duration
            share, seconds = setting.weights[index] / 100, setting.limits.max_duration
            self._windows[index] = (
                self._track(2 * index + 2, begin, seconds, share, setting.fault),
                self._track(2 * index + 3, begin, seconds, 1.0 - share),
            )
        return self._windows[index]

    def _track(
        self, stream: int, begin: int, seconds: int, share: float, fault: Fault | None = None
    ) -> Track:
        moments = np.arange(begin, begin + seconds)
        return draw(self.setting.traffic, moments, self._draws(stream), share, self._phase, fault)

    def _draws(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((*self._key, stream))


def draw(
    traffic: Traffic,
    moments: Ints,
    draws: np.random.Generator,
    share: float = 1.0,
    phase: float = 0.0,
    fault: Fault | None = None,
) -> Track:
    """One revision's track over `moments` (seconds after the switch), with this share (0..1) of the requests."""
    rate, errors, p95 = _means(traffic, moments, phase, fault)
    if traffic.spells is not None:
        errors = errors + traffic.spells.errors * _during(traffic.spells, len(moments), draws)
    counts = draws.poisson(rate * share)
    second = np.repeat(np.arange(len(moments)), counts)
    failed = _failed(traffic, errors[second], fault, draws)
    median = p95 / math.exp(P95_SIGMAS * traffic.sigma)
    answered = second[~failed]
    ttft = median[answered] * np.exp(traffic.sigma * draws.standard_normal(len(answered)))
    place = answered * len(EDGES) + np.searchsorted(EDGES, ttft)
    table = np.bincount(place, minlength=len(moments) * len(EDGES)).reshape(len(moments), len(EDGES))
    return Track(
        _since_begin(counts),
        _since_begin(np.bincount(second[failed], minlength=len(moments))),
        np.vstack((np.zeros((1, len(EDGES)), dtype=np.int64), table.cumsum(axis=0).cumsum(axis=1))),
    )


def clumps(total: int, share: float, length: int, draws: np.random.Generator) -> NDArray[np.bool_]:
    """Which of `total` requests in a row fail, when they fail `length` at a time: geometric gaps lie between the clumps.
    It begins before the first of them, which may then be in the middle of a clump."""
    lead = 5 * length
    gap = length * (1 - share) / share
    expected = (total + lead) / (gap + length)
    gaps = draws.geometric(1 / gap, size=math.ceil(expected + 10 * math.sqrt(expected) + 20))
    begins = np.cumsum(gaps) + length * np.arange(len(gaps))
    places = (begins[:, None] + np.arange(length)).ravel() - lead
    failed = np.zeros(total, dtype=np.bool_)
    failed[places[(places >= 0) & (places < total)]] = True
    return failed


def _during(spells: Spells, seconds: int, draws: np.random.Generator) -> Floats:
    """1 in the seconds of a spell, else 0. It begins at any moment of either."""
    on = draws.random() < spells.on / (spells.on + spells.off)
    found, at = np.zeros(seconds), 0
    while at < seconds:
        length = int(draws.geometric(1 / (spells.on if on else spells.off)))
        found[at : at + length] = float(on)
        at, on = at + length, not on
    return found


def _means(
    traffic: Traffic, moments: Ints, phase: float, fault: Fault | None
) -> tuple[Floats, Floats, Floats]:
    """By moment: requests per second, share of errors, 95th percentile."""
    even = np.ones(len(moments))
    rate, errors, p95 = traffic.rate * even, traffic.errors * even, traffic.p95 * even
    if (drift := traffic.drift) is not None:
        swing = np.sin(2 * math.pi * (moments / drift.period_s + phase))
        rate *= 1 + drift.rate * swing
        errors *= 1 + drift.errors * swing
        p95 *= 1 + drift.latency * swing
    if traffic.unsteady:
        levels = np.random.default_rng(int(phase * 2**53)).standard_normal(LEVELS)
        p95 *= np.exp(traffic.unsteady * levels[moments // INTERVAL_S % LEVELS])
    if fault is not None:
        since = moments >= fault.starts
        p95 = np.where(since, p95 * fault.slower, p95)
        errors = errors if fault.errors is None else np.where(since, fault.errors, errors)
    return rate, errors, p95


def _failed(
    traffic: Traffic, errors: Floats, fault: Fault | None, draws: np.random.Generator
) -> NDArray[np.bool_]:
    """By request. A fault's errors come one by one."""
    if traffic.clump > 1 and fault is None:
        return clumps(len(errors), traffic.errors, traffic.clump, draws)
    return draws.random(len(errors)) < errors


def _since_begin(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts)))
