"""docs/concepts/verdicts.md: a figure above its limit within the margin, or just below it, is watched for longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import LatencyLimit, Limits
from llmendpoint_operator.core.rollout.tails import Tail

LIMITS = Limits(duration=60, error_rate=0.02)
TTFT = LatencyLimit("TTFT", "TimeToFirstToken", "ttft", lambda found: found.ttft, seconds=0.3)


def is_near(
    green: Figures, before: Figures | None = None, beside: Figures | None = None, limits: Limits = LIMITS
) -> bool:
    """Whether green, which is shown to be within the margin, is watched for longer."""
    verdict = judge(limits, green, before, 600, beside)
    assert verdict.kept
    assert verdict.reason in ("NearLimit", "WithinLimits")
    return verdict.reason == "NearLimit"


@pytest.mark.parametrize(
    ("failed", "near"), [(0, False), (15, False), (17, False), (18, True), (20, True), (22, True)]
)
def test_a_figure_is_near_from_half_a_standard_error_below_its_limit_on(failed: int, near: bool) -> None:
    assert is_near(Figures(1000, failed)) == near


def test_failures_that_come_together_are_near_from_further_below() -> None:
    assert not is_near(Figures(4000, 70))
    assert is_near(Figures(4000, 70, clumping=10.0))


def test_no_worse_than_the_old_revision_in_the_same_seconds_is_not_near() -> None:
    assert not is_near(Figures(1000, 19), None, Figures(1000, 19))
    assert is_near(Figures(1000, 19), None, Figures(4000, 1))


def test_no_worse_than_an_old_revision_that_broke_the_limit_is_not_near() -> None:
    assert not is_near(Figures(4000, 140), Figures(4000, 160))


def test_an_increase_is_near_its_limit_as_a_share_is() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    blue = Figures(20_000, 100)
    assert is_near(Figures(4000, 58), blue, limits=limits)
    assert not is_near(Figures(4000, 40), blue, limits=limits)


@pytest.mark.parametrize(("above", "near"), [(40, False), (197, True)])
def test_a_latency_is_near_by_the_bound_above_its_limit(above: int, near: bool) -> None:
    """6 % are slower than the bound below it, which may still be within the limit."""
    tail = Tail(4000, (0.2, 0.4), (240.0, float(above)), (1.0, 1.0))
    limits = replace(LIMITS, error_rate=None, latencies=(TTFT,))
    assert is_near(Figures(4000, ttft=tail), limits=limits) == near


def test_a_revision_that_is_near_and_then_breaks_the_limit_is_rolled_back() -> None:
    assert is_near(Figures(2000, 50))
    assert judge(LIMITS, Figures(2000, 100), None, 600).result is Result.BAD
