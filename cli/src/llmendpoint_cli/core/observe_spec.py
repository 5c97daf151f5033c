"""The limits of a rollout, as the operator reads them from an LLMEndpoint's spec, with the CRD's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .objects import Object

OBSERVE = "spec.rollout.observe"
DEFAULT_ERROR_RATE = 0.02
SLOWEST = 0.05
"""Share of the requests that may be slower than a limit of a 95th percentile."""
FAIL = "fail"
"""What is said of requests that a limit of errors counts."""
LATENCIES = ("ttft", "itl", "e2e")


@dataclass(frozen=True, slots=True)
class Limit:
    """`allowed`: the share of the requests (0..1) that may fail or be slow; `relative`: more than of the old revision's.
    `healthy`: the share to expect of a good revision; None: as many as fail now. `seen`: what is said of a share that breaks it.
    `written`: by the user."""

    field: str
    text: str
    allowed: float
    seen: str
    relative: bool = False
    healthy: float | None = None
    written: bool = True

    @property
    def errors(self) -> bool:
        """Whether it limits the requests that fail."""
        return self.seen == FAIL


@dataclass(frozen=True, slots=True)
class Step:
    """`weight`: percent of the requests that the new revision gets; the old one keeps the rest. `duration`: seconds of
    observation."""

    weight: int
    duration: float

    @property
    def beside(self) -> float:
        """Requests that the old revision gets for each one of the new revision's."""
        return (100 - self.weight) / self.weight


@dataclass(frozen=True, slots=True)
class Asked:
    """What `rollout` and `slo` ask for. `waits`: whether a rollout without a verdict waits for maxDuration."""

    limits: tuple[Limit, ...]
    steps: tuple[Step, ...]
    max_duration: float
    margin: float
    false_rollback_rate: float
    miss_rate: float
    min_requests: int
    waits: bool

    @property
    def windows(self) -> int:
        """Times that each limit is tested: at each step of a canary, and with all requests."""
        return len(self.steps)

    @property
    def duration(self) -> float:
        """`rollout.observe.duration`: that of the last step, with all requests but those of `control`."""
        return self.steps[-1].duration

    @property
    def patience_field(self) -> str:
        """What says how long the operator waits for a verdict."""
        return "maxDuration" if self.waits else "duration"

    def patience(self, step: Step) -> float:
        """Seconds for which the operator waits for a verdict at a step."""
        return max(step.duration, self.max_duration) if self.waits else step.duration


def asked_by(spec: Object) -> Asked:
    """Raises ValueError, TypeError or AttributeError for what the API server would refuse."""
    rollout: Object = spec.get("rollout") or {}
    observe: Object = rollout.get("observe") or {}
    slo: Object = spec.get("slo") or {}
    limits = tuple(_limits(observe, slo))
    canary = (rollout.get("canary") or {}).get("steps") or ()
    steps = [Step(_percent(step, "weight", 1, 99), float(step.get("duration", 60))) for step in canary]
    control = _percent(observe, "control", 10, 50) if observe.get("control") is not None else 0
    return Asked(
        limits=limits,
        steps=(*steps, Step(100 - control, float(observe.get("duration", 60)))),
        max_duration=float(observe.get("maxDuration", 600)),
        margin=_rate(observe, "margin", 0.03),
        false_rollback_rate=_rate(observe, "falseRollbackRate", 0.01),
        miss_rate=_rate(observe, "missRate", 0.05),
        min_requests=int(observe.get("minRequests") or 0),
        waits=any(limit.written for limit in limits) or observe.get("onInconclusive") is not None,
    )


def _percent(found: Object, field: str, least: int, most: int) -> int:
    number = int(found[field])
    if not least <= number <= most:
        raise ValueError(f"{field} is {number}; it must be from {least} to {most}")
    return number


def _rate(observe: Object, field: str, default: float) -> float:
    found = float(observe.get(field, default))
    if not 0 < found < 0.5:
        raise ValueError(f"{OBSERVE}.{field} is {found:g}; it must be above 0 and below 0.5")
    return found


def _limits(observe: Object, slo: Object) -> Iterator[Limit]:
    rate: Object | None = observe.get("errorRate")
    most: Any = rate.get("max") if rate is not None else DEFAULT_ERROR_RATE
    if most is not None:
        field, text = f"{OBSERVE}.errorRate.max", f"at most {float(most):.1%} of the requests fail"
        yield Limit(field, text, float(most), FAIL, written=rate is not None)
    increase: Any = rate.get("maxIncrease") if rate is not None else None
    if increase is not None:
        text = f"at most {float(increase):.1%} more of the requests fail than at the old revision"
        yield Limit(f"{OBSERVE}.errorRate.maxIncrease", text, float(increase), FAIL, relative=True)
    for key in LATENCIES:
        yield from _latency(key, observe.get(key) or {}, slo.get(f"{key}Seconds"))


def _latency(key: str, written: Object, slo: Any) -> Iterator[Limit]:
    seconds, ratio = written.get("p95Seconds"), written.get("maxRatio")
    field = f"{OBSERVE}.{key}.p95Seconds" if seconds is not None else f"spec.slo.{key}Seconds"
    seconds = slo if seconds is None else seconds
    if seconds is not None:
        text, seen = f"{key} p95 at most {float(seconds):g} s", f"slower than {float(seconds):g} s"
        yield Limit(field, text, SLOWEST, seen, healthy=SLOWEST / 2)
    if ratio is not None:
        text = f"{key} p95 at most {float(ratio):g} times the old one"
        seen = f"slower than {float(ratio):g} times the old p95"
        yield Limit(f"{OBSERVE}.{key}.maxRatio", text, 0.0, seen, relative=True, healthy=SLOWEST)
