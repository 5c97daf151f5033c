"""What the benchmark prints, and the figures that it leaves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from tests.bench.results import Result, figure
from tests.bench.verdicts.rollouts import PRODUCT, RULES, End, Outcome, Outcomes
from tests.bench.verdicts.settings import Setting

CONFIDENCE = 0.95
FALSE_AT_MOST, SEEN_AT_LEAST = 1.0, 95.0
OTHERS = [name for name in RULES if name != PRODUCT]

HEALTHY_HEAD = (
    "healthy",
    "rule",
    "rolled back",
    "at most (95 %)",
    "no verdict",
    "seconds p50/p95",
    "requests p50/p95",
)
DEGRADED_HEAD = ("degraded", "rule", "seen in time", "at least (95 %)", "seconds p50/p95", "requests p50/p95")


def at_most(hits: int, count: int) -> float:
    """The largest share (0..1) with which so few hits are not unlikelier than 5 %: the upper end of Clopper and Pearson's
    exact one-sided interval (Biometrika 26, 1934)."""
    if hits >= count:
        return 1.0
    low, high = hits / count, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(hits, count, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def at_least(hits: int, count: int) -> float:
    """The lower end likewise."""
    return 1.0 - at_most(count - hits, count)


def _chance(hits: int, count: int, share: float) -> float:
    """Of at most so many hits. In logarithms: the first terms of a large share are below the smallest float."""
    if share >= 1.0:
        return 0.0
    hit, miss, ways = math.log(share), math.log1p(-share), math.lgamma(count + 1)
    return math.fsum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * hit + (count - k) * miss)
        for k in range(hits + 1)
    )


def middle_and_tail(values: Sequence[float]) -> tuple[float, float] | None:
    """Median and 95th percentile; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]


def share_of(outcomes: Sequence[Outcome], end: End) -> float:
    """Percent."""
    return 100 * sum(outcome.end is end for outcome in outcomes) / len(outcomes)


def seen_in(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those in which a fault was seen: what was rolled back before it began was not."""
    return [outcome for outcome in outcomes if outcome.end is End.BAD and outcome.seconds > 0]


def healthy_rows(setting: Setting, found: Outcomes) -> list[tuple[str, ...]]:
    """One for each rule."""
    rows = []
    for rule, outcomes in found.items():
        hits = sum(outcome.end is End.BAD for outcome in outcomes)
        rows.append((
            setting.name, rule, f"{100 * hits / len(outcomes):.1f} %", f"{100 * at_most(hits, len(outcomes)):.2f} %",
            f"{share_of(outcomes, End.INCONCLUSIVE):.1f} %", *_times(_decided(outcomes)),
        ))  # fmt: skip
    return rows


def degraded_rows(setting: Setting, found: Outcomes) -> list[tuple[str, ...]]:
    """One for each rule."""
    rows = []
    for rule, outcomes in found.items():
        seen = seen_in(outcomes)
        rows.append((
            setting.name, rule, f"{100 * len(seen) / len(outcomes):.1f} %",
            f"{100 * at_least(len(seen), len(outcomes)):.2f} %", *_times(seen),
        ))  # fmt: skip
    return rows


def _decided(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.end is not End.INCONCLUSIVE]


def _times(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    seconds = middle_and_tail([outcome.seconds for outcome in outcomes])
    requests = middle_and_tail([outcome.requests for outcome in outcomes])
    if seconds is None or requests is None:
        return "-", "-"
    return f"{seconds[0]:.0f}/{seconds[1]:.0f}", f"{requests[0]:.0f}/{requests[1]:.0f}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of Markdown."""
    rows = [head, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def healthy_result(setting: Setting, found: Outcomes) -> Result:
    """The product beside the others: how often a healthy revision was rolled back."""
    own = found[PRODUCT]
    seconds, requests = _times(_decided(own))
    metric = (
        f"healthy, {setting.name}: rolled back; {figure(share_of(own, End.INCONCLUSIVE))} % without a verdict, the others "
        f"after {seconds} s and {requests} requests (p50/p95)"
    )
    bound = 100 * at_most(sum(outcome.end is End.BAD for outcome in own), len(own))
    against = _others({rule: share_of(outcomes, End.BAD) for rule, outcomes in found.items()})
    unit = f"% (at most {figure(bound)} %)"
    return Result(metric, share_of(own, End.BAD), unit, against, goal=f"<= {FALSE_AT_MOST:.0f} %")


def degraded_result(setting: Setting, found: Outcomes) -> Result:
    """How often a fault was seen, and when."""
    seen = {rule: seen_in(outcomes) for rule, outcomes in found.items()}
    seconds, requests = _times(seen[PRODUCT])
    metric = f"degraded, {setting.name}: seen; after {seconds} s and {requests} requests (p50/p95)"
    shares = {rule: 100 * len(some) / len(found[rule]) for rule, some in seen.items()}
    against = _others(shares, {rule: _times(some)[0] for rule, some in seen.items()})
    return Result(metric, shares[PRODUCT], "%", against, goal=f">= {SEEN_AT_LEAST:.0f} %{setting.goal}")


def _others(shares: Mapping[str, float], seconds: Mapping[str, str] | None = None) -> str:
    after = {name: f" after {seconds[name].split('/')[0]} s" if seconds else "" for name in OTHERS}
    return ", ".join(f"{name} {figure(shares[name])} %{after[name]}" for name in OTHERS)
