"""The product's own judge, fed as `observe/rollout` feeds it: counters of one gateway and histograms of one pod of each
revision every two seconds, and a verdict after each. Nothing else in this benchmark calls the judge."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.baseline import make_baseline
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.histograms import Histogram
from llmendpoint_operator.core.rollout.limits import find_limits
from llmendpoint_operator.core.rollout.measurements import Counts, Latencies, Measurements
from llmendpoint_operator.core.rollout.records import Progress, State, parse_progress
from llmendpoint_operator.core.rollout.tails import Tail
from tests.bench.verdicts.rules import LOOK_S, Answer
from tests.bench.verdicts.settings import Limits, Setting
from tests.bench.verdicts.streams import EDGES, Ints, Tally, Track

BLUE, GREEN = "blue", "green"
RECENT_S = 600.0
"""As in observe/rollout/evidence.py."""
ANSWERS = {Result.GOOD: Answer.GOOD, Result.BAD: Answer.BAD, Result.TOO_LITTLE: Answer.WAIT}


@functools.cache
def spec_of(limits: Limits, weights: tuple[int, ...]) -> LLMEndpointSpec:
    """What a user would write."""
    observe: dict[str, Any] = {
        "duration": limits.duration,
        "maxDuration": limits.max_duration,
        "errorRate": _given(max=limits.errors, maxIncrease=limits.increase),
    }
    if ttft := _given(p95Seconds=limits.ttft_s, maxRatio=limits.ttft_ratio):
        observe["ttft"] = ttft
    if weights[-1] < 100:
        observe["control"] = 100 - weights[-1]
    rollout: dict[str, Any] = {"observe": observe}
    if len(weights) > 1:
        steps = [{"weight": weight, "duration": limits.duration} for weight in weights[:-1]]
        rollout |= {"strategy": "Canary", "canary": {"steps": steps}}
    return LLMEndpointSpec.model_validate({"model": {"source": "hf://example/model"}, "rollout": rollout})


def _given(**fields: float | None) -> dict[str, float]:
    return {name: value for name, value in fields.items() if value is not None}


class Product:
    """A `Rule`. `sample` and `judge` are the two halves of a look."""

    def __init__(self, setting: Setting) -> None:
        duration = setting.limits.duration
        self._limits = find_limits(spec_of(setting.limits, setting.weights), float(duration))
        self._measurements = Measurements(RECENT_S)
        self._baseline: Figures | None = None
        self._now = self._began = 0
        self._weights = iter(setting.weights)
        self._concurrent = False
        self._longest = setting.limits.max_duration
        self._ended: dict[str, tuple[int, int, Ints]] = {}
        self._last: dict[str, tuple[int, int, Ints]] = {}

    def before(self, blue: Track, rest: Sequence[Tally] = ()) -> None:
        """Blue alone gets requests; green's pod is there, and was read once."""
        self._last[GREEN] = (0, 0, 0 * blue.ttft[0])
        self._read_pod(GREEN)
        for at in range(0, blue.seconds + 1, LOOK_S):
            self._read(at, {BLUE: blue}, at)
        baseline = make_baseline([_figures(tally) for tally in rest], self._measurements.recent(BLUE))
        measured = Progress(State.OBSERVING, BLUE, GREEN, baseline=baseline)
        self._baseline = parse_progress(
            {"rollout": measured.as_json()}, BLUE
        ).baseline  # as the status holds it

    def begin(self) -> None:
        """What was counted before stays in the counters."""
        self._concurrent = next(self._weights) < 100
        self._began = self._now
        self._ended = dict(self._last)
        self._measurements.begin(float(self._now))

    def look(self, at: int, green: Track, blue: Track) -> Answer:
        """All that the operator does in one."""
        self.sample(at, green, blue)
        return self.judge(at)

    def sample(self, at: int, green: Track, blue: Track) -> None:
        """Read the gateway, and a pod of each revision that gets requests."""
        self._read(self._began + at, {GREEN: green} | ({BLUE: blue} if self._concurrent else {}), at)

    def judge(self, at: int) -> Answer:
        """Figures and a verdict."""
        figures = self._measurements.in_window(GREEN) or Figures()
        beside = self._measurements.in_window(BLUE) or Figures() if self._concurrent else None
        verdict = judge(self._limits, figures, self._baseline, float(at), beside)
        if verdict.kept and at >= self._longest:
            return Answer.GOOD
        return ANSWERS[verdict.result]

    def _read(self, now: int, tracks: dict[str, Track], at: int) -> None:
        """Counters since the processes began."""
        self._now = now
        for revision, track in tracks.items():
            requests, failed, ttft = self._ended.get(revision, (0, 0, 0))
            self._last[revision] = (
                requests + int(track.requests[at]), failed + int(track.failed[at]), ttft + track.ttft[at]
            )  # fmt: skip
        counts = {revision: Counts(last[0], last[1]) for revision, last in self._last.items()}
        self._measurements.add_gateway("gateway", "1", counts)
        for revision in tracks:
            self._read_pod(revision)
        self._measurements.sampled(float(now), gateways=True)

    def _read_pod(self, revision: str) -> None:
        histogram = Histogram(EDGES, tuple(map(float, self._last[revision][2].tolist())))
        self._measurements.add_engine(f"{revision}-0", revision, Latencies(ttft=histogram))


def _figures(tally: Tally) -> Figures:
    """Of ten minutes, as observe/rollout/intervals.py keeps them."""
    within = tuple(map(float, tally.ttft.tolist()))
    slower = tuple(within[-1] - one for one in within[:-1])
    return Figures(
        tally.requests, tally.failed, ttft=Tail(within[-1], EDGES[:-1], slower) if within[-1] else None
    )
