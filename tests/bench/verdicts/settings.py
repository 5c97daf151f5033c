"""What is simulated. Healthy: both revisions are the same, and every limit allows what they do. Degraded: the new one is
worse than a limit allows."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Drift:
    """A day: rate, latency and errors swing by these shares around their middle, all together. With these a
    latency grows by at most 9 % within 15 minutes: from the middle of ten minutes before the switch to the end of ten
    after it. So no limit here is broken at any moment."""

    period_s: float = 6 * HOUR_S
    rate: float = 0.6
    latency: float = 0.3
    errors: float = 0.8


@dataclass(frozen=True, slots=True)
class Spells:
    """Now and then, for so many seconds on average, this share of the requests fails too; as long as `off` lies between."""

    on: float = 10.0
    off: float = 190.0
    errors: float = 0.2


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests per second, of both revisions together; the share that fails, in clumps of so many in a row; the time to
    the first token, log-normal with this sigma and 95th percentile in seconds. `unsteady`: each ten minutes have a percentile of
    their own, log-normal with this sigma."""

    rate: float = 10.0
    errors: float = 0.005
    clump: int = 1
    sigma: float = 0.5
    p95: float = 0.45
    drift: Drift | None = None
    spells: Spells | None = None
    unsteady: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Of the new revision, from `starts` seconds after the switch on: another share of errors, latencies times
    `slower`."""

    errors: float | None = None
    slower: float = 1.0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """As in `spec.rollout.observe`; seconds, shares (0..1), ratios to the old revision."""

    errors: float = 0.02
    increase: float | None = None
    ttft_s: float | None = None
    ttft_ratio: float | None = None
    duration: int = 60
    max_duration: int = 600
    min_requests: int = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """`weights`: the new revision's percentages, one after the other; the old one keeps the rest. `before`: seconds for which the old one was measured
    before the switch; `rest`: at rest before that. `goal`: what is asked of the product besides seeing the fault."""

    name: str
    traffic: Traffic = field(default_factory=Traffic)
    limits: Limits = field(default_factory=Limits)
    weights: tuple[int, ...] = (100,)
    before: int = 600
    rest: int = 3 * 3600
    fault: Fault | None = None
    goal: str = ""


ABSOLUTE = Limits(ttft_s=0.5)
"""The healthy 95th percentile is 0.9 times this."""
RELATIVE = Limits(ttft_ratio=1.1)
BOTH = Limits(ttft_s=0.5, ttft_ratio=1.1)
STEPS = (10, 25, 50, 75, 100)

HEALTHY = (
    Setting("no errors", Traffic(errors=0.0)),
    Setting("errors 0.1 %", Traffic(errors=0.001)),
    Setting("errors 0.5 %", Traffic(errors=0.005)),
    Setting("errors 1 %", Traffic(errors=0.01)),
    Setting("errors 2 %, the limit", Traffic(errors=0.02)),
    Setting("1 request/s", Traffic(rate=1.0)),
    Setting("100 requests/s", Traffic(rate=100.0)),
    Setting("TTFT, sigma 0.5", Traffic(errors=0.0, sigma=0.5), BOTH),
    Setting("TTFT, sigma 1.0", Traffic(errors=0.0, sigma=1.0), BOTH),
    Setting("clumps of 10 failures", Traffic(clump=10)),
    Setting("a drifting day", Traffic(drift=Drift()), Limits(increase=0.01, ttft_ratio=1.1)),
    Setting("canary of 4 steps", Traffic(), ABSOLUTE, STEPS),
    Setting("each ten minutes 10 % slower or faster", Traffic(unsteady=0.1), RELATIVE),
    Setting(
        "a drifting day, control 20 %", Traffic(drift=Drift()), Limits(increase=0.01, ttft_ratio=1.1), (80,)
    ),
    Setting("4 % fail at both revisions, control 20 %", Traffic(errors=0.04), weights=(80,)),
    Setting("spells of 10 s with 20 % of errors", Traffic(errors=0.0, spells=Spells())),
)
"""At 10 requests/s and 0.5 % of errors where nothing else is said."""


def _slow(name: str, sigma: float, limits: Limits, weights: tuple[int, ...] = (100,)) -> Setting:
    return Setting(
        f"TTFT +30 %, sigma {sigma}, {name}",
        Traffic(errors=0.0, sigma=sigma),
        limits,
        weights,
        fault=Fault(slower=1.3),
    )


DEGRADED = (
    Setting("errors +5 points", fault=Fault(errors=0.055)),
    Setting("errors 10 %", fault=Fault(errors=0.1)),
    _slow("limit in seconds", 0.5, ABSOLUTE),
    _slow("limit in seconds", 1.0, ABSOLUTE),
    _slow("limit as a ratio", 0.5, RELATIVE),
    _slow("limit as a ratio", 1.0, RELATIVE),
    Setting("total failure", fault=Fault(errors=1.0)),
    Setting(
        "total failure, 1 request/s",
        Traffic(rate=1.0),
        fault=Fault(errors=1.0),
        goal=", within 5 requests in the middle",
    ),
    Setting("total failure after 60 s", limits=Limits(duration=300), fault=Fault(errors=1.0, starts=60)),
    _slow("limit as a ratio, control 20 %", 1.0, RELATIVE, (80,)),
)
"""Total failure after 60 s is observed for longer than its good time: who has said Good does not look any more."""
