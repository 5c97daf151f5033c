"""docs/concepts/verdicts.md: the counts of an observation stand in the status, so that a restart of the operator loses none."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api.rollout_status import ObservationStatus
from llmendpoint_operator.core.rollout.account import (
    FIRST_SECONDS,
    MOST_POINTS,
    WRITES_PER_S,
    Account,
    LimitAccount,
    Point,
    due_in,
    joined,
    parse_account,
    with_point,
)
from llmendpoint_operator.core.rollout.analysis import judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import LatencyLimit, Limits
from llmendpoint_operator.core.rollout.observation import held
from llmendpoint_operator.core.rollout.tails import Tail

from ..fake_cluster import NOW
from ..figures import figures
from ..rollout_stage import WATCHED, Rollout

LIMITS = Limits(duration=60, error_rate=0.02)

some = st.integers(0, 2000).flatmap(
    lambda requests: st.builds(
        figures,
        st.just(requests),
        st.integers(0, requests),
        st.none() | st.floats(0.01, 10),
        seconds=st.integers(0, 3000).map(lambda tenths: tenths / 10),
        clumping=st.integers(100, 2000).map(lambda hundredths: hundredths / 100),
    )
)
accounts = st.builds(
    Account,
    st.just(NOW),
    some,
    st.none() | some,
    st.just((LimitAccount("spec.rollout.observe.errorRate.max", 0.5, 1.0, "error rate 1.0%"),)),
    st.just((Point(10.0, 0.2, 0.1), Point(20.5, 0.5, 1.0))),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(0, 10**4).map(float),
    st.sampled_from(["", "at 1 requests/s it takes long"]),
)


@given(accounts)
def test_what_was_written_is_read_and_written_as_it_was(account: Account) -> None:
    written = account.as_json()
    found = parse_account(written)
    assert found is not None
    assert found.as_json() == written, "else a status that nothing changed would be written again and again"
    assert (found.green.requests, found.green.errors) == (account.green.requests, account.green.errors)
    ObservationStatus.model_validate(written)


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=200))
def test_the_course_of_the_evidence_is_bounded_and_in_order(steps: list[float]) -> None:
    history: tuple[Point, ...] = ()
    at = 0.0
    for step in steps:
        at += step
        history = with_point(history, Point(at, 0.1, 0.2))
    assert len(history) <= MOST_POINTS
    assert [one.seconds for one in history] == sorted({one.seconds for one in history})
    assert history[-1].seconds == at


def test_two_points_of_one_moment_are_one() -> None:
    first = with_point((), Point(10.0, 0.1, 0.2))
    assert with_point(first, Point(10.0, 1.0, 0.2)) == (Point(10.0, 1.0, 0.2),)


@pytest.mark.parametrize(
    "absurd",
    [
        {}, {"requests": 10}, {"requests": 10, "errors": 11, "at": "2026-01-01T00:00:00Z", "seconds": 5},
        {"requests": 10, "errors": 1, "at": "x", "seconds": 5}, {"requests": 10, "errors": 1, "seconds": 5},
        {"requests": 10, "errors": 1, "at": "2026-01-01T00:00:00Z", "seconds": -5},
        {"requests": 10, "errors": 1, "at": "2026-01-01T00:00:00Z", "seconds": "nan"},
        {"requests": 10, "errors": 1, "at": "2026-01-01T00:00:00Z", "seconds": 5, "limits": [{"field": "x"}]},
        {"requests": 10, "errors": 1, "at": "2026-01-01T00:00:00Z", "seconds": 5, "history": [1]},
    ],
)  # fmt: skip
def test_what_no_operator_wrote_is_not_gone_on_from(absurd: dict[str, Any]) -> None:
    assert parse_account(absurd) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12), st.data())
def test_a_restart_at_any_moment_changes_no_count_and_no_evidence(
    looks: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each look counts some requests; a new operator goes on from the account that stands in the status."""
    parts = [Figures(good + bad, bad, seconds=2.0) for good, bad in looks]
    unbroken = parts[0]
    for part in parts[1:]:
        unbroken = joined(unbroken, part)
    carried, counted = None, None
    for part in parts:
        counted = part if counted is None else joined(counted, part)
        if data.draw(st.booleans()):
            whole = counted if carried is None else joined(carried, counted)
            account = parse_account(Account(NOW, whole).as_json())
            assert account is not None
            carried, counted = account.green, None
    whole = counted if carried is None else carried if counted is None else joined(carried, counted)
    assert whole is not None
    assert (whole.requests, whole.errors, whole.seconds) == (
        unbroken.requests, unbroken.errors, unbroken.seconds,
    )  # fmt: skip
    assert judge(LIMITS, whole, None, 60) == judge(LIMITS, unbroken, None, 60)


@given(some, some, some)
def test_parts_of_a_window_are_joined_in_any_order(one: Figures, two: Figures, three: Figures) -> None:
    left, right = joined(joined(one, two), three), joined(one, joined(three, two))
    assert (left.requests, left.errors) == (right.requests, right.errors)
    assert left.clumping == pytest.approx(right.clumping)


def test_latencies_of_two_parts_are_added_at_the_bounds_that_both_have() -> None:
    both = joined(figures(100, 0, ttft=0.2), figures(300, 0, ttft=0.2))
    assert both.ttft is not None
    assert (both.ttft.requests, both.ttft.p95) == (400, pytest.approx(0.2))
    assert joined(figures(100), figures(50, ttft=0.2)).ttft is not None


@pytest.mark.parametrize("limit", [0.5, 1, 5])
def test_after_a_restart_a_limit_far_from_the_percentile_is_judged_as_before(limit: float) -> None:
    """The status holds 16 bounds of many; those around the limit are among them."""
    bounds = tuple(0.001 * 1.1**i for i in range(120))
    fast = Tail(1000, bounds, tuple(1000 * math.exp(-60 * bound) for bound in bounds), (1.0,) * 120)
    slow = Tail(500, bounds, tuple(500.0 if bound < 80 else 0.0 for bound in bounds), (1.0,) * 120)
    asked = LatencyLimit("TTFT", "Ttft", "ttft", attrgetter("ttft"), limit, "spec.slo.ttftSeconds")
    limits = replace(LIMITS, latencies=(asked,))
    first = replace(figures(1000, 0, seconds=30), ttft=fast)
    account = parse_account(Account(NOW, held(first, limits)).as_json())
    assert account is not None
    whole = joined(account.green, replace(figures(500, 0, seconds=30), ttft=slow))
    assert judge(limits, whole, None, 60).reason == "TtftTooHigh"


def test_a_long_observation_costs_few_writes() -> None:
    account, at, writes = None, NOW, 0
    for second in range(3600):
        at = NOW + timedelta(seconds=second)
        found = Figures(10 * (second + 1), 0, seconds=float(second))
        if due_in(account, found, at, 1) == 0:
            account, writes = Account(at, found), writes + 1
    assert 30 < writes < 60
    assert account is not None
    assert due_in(account, account.green, at + timedelta(hours=1), 1) is None, "nothing new"


@given(st.integers(1, 2000), st.integers(1, 1200))
def test_many_observations_share_the_writes_of_a_second(endpoints: int, lasts: int) -> None:
    """After the first account of each, which tells that the observation has begun."""
    account, later = None, 0
    for second in range(0, lasts, 2):
        at, found = NOW + timedelta(seconds=second), Figures(10 * second + 10, seconds=float(second))
        if due_in(account, found, at, endpoints) == 0:
            later += account is not None
            account = Account(at, found)
    assert endpoints * later <= WRITES_PER_S * lasts
    assert endpoints * later <= endpoints * lasts / FIRST_SECONDS


def test_an_account_of_the_last_requests_is_waited_for_when_none_come_any_more() -> None:
    it, green = observing(maxDuration=600)
    for at, requests in ((2, 20), (4, 40)):
        it.cluster.figures = {green: figures(requests, 0, seconds=at)}
        it.work(2)
    assert it.cluster.status["rollout"]["observation"]["requests"] == 20
    assert it.cluster.plan(it.now).requeue_after == 8
    it.work(8)
    assert it.cluster.status["rollout"]["observation"]["requests"] == 40
    assert it.cluster.plan(it.now).requeue_after == 60 - 4, (
        "as far as figures are known: to the end of duration"
    )


def observing(**observe: Any) -> tuple[Rollout, str]:
    it = Rollout(observe={"duration": 60, **WATCHED, **observe})
    green = it.switched()
    return it, green


def test_the_status_tells_how_far_the_verdict_is() -> None:
    it, green = observing()
    it.cluster.figures = {green: figures(100, 1, seconds=20)}
    it.work(20)
    told = it.cluster.status["rollout"]["observation"]
    assert (told["requests"], told["errors"], told["seconds"]) == (100, 1, 20)
    [limit] = told["limits"]
    assert limit["field"] == "spec.rollout.observe.errorRate.max"
    assert limit["said"] == "error rate 1.0% (1 of 100 requests); limit 2.0%"
    assert 0 < limit["kept"] < 1
    assert told["expectedRequests"] > 100
    message = it.cluster.condition("Progressing")["message"]
    assert f"100 of about {told['expectedRequests']} requests, about 40 s" in message
    ObservationStatus.model_validate(told)


def test_no_end_is_foretold_of_a_figure_that_is_watched_on_because_it_is_near_its_limit() -> None:
    it, green = observing()
    it.cluster.figures = {green: figures(4000, 84, seconds=80)}
    it.work(80)
    told = it.cluster.status["rollout"]["observation"]
    assert told["limits"][0]["kept"] == 1
    assert "expectedRequests" not in told
    assert "expectedSeconds" not in told
    assert "4000 requests so far" in it.cluster.condition("Progressing")["message"]


def test_a_clock_that_went_back_and_counts_that_fell_do_not_stop_the_account() -> None:
    account = Account(NOW + timedelta(hours=1), Figures(10**9, 0, seconds=30.0))
    assert due_in(account, Figures(100, 0, seconds=40.0), NOW, 1) == 0


def test_after_a_rollback_the_account_with_the_last_figures_stays() -> None:
    it, green = observing()
    it.cluster.figures = {green: figures(20, 0, seconds=2)}
    it.work(2)
    it.cluster.figures = {green: figures(400, 80, seconds=4)}
    it.work(2)
    assert it.cluster.state in ("RollingBack", "RolledBack")
    told = it.cluster.status["rollout"]["observation"]
    assert (told["requests"], told["errors"]) == (400, 80)
    assert told["limits"][0]["broken"] == 1
    assert [one["seconds"] for one in told["history"]] == [2, 4]
    it.cluster.follow()
    assert it.work(60) == "RolledBack"
    assert it.cluster.status["rollout"]["observation"] == told


def test_the_next_step_of_a_canary_begins_a_new_account() -> None:
    it = Rollout(
        strategy="Canary",
        canary={"steps": [{"weight": 10, "duration": 5}]},
        observe={"duration": 60, **WATCHED},
    )
    green = it.switched()
    it.cluster.figures = {green: figures(1000, 1, seconds=4), it.blue: figures(9000, 9, seconds=4)}
    it.work(4)
    assert it.cluster.status["rollout"]["observation"]["old"]["requests"] == 9000
    it.cluster.figures = {green: figures(1000, 1, seconds=6), it.blue: figures(9000, 9, seconds=6)}
    it.work(2)
    assert "observation" not in it.cluster.status["rollout"]


def test_too_little_traffic_for_a_verdict_in_time_is_told_with_what_to_change() -> None:
    it, green = observing(maxDuration=120)
    it.cluster.figures = {green: figures(12, 0, seconds=30)}
    it.work(30)
    late = it.cluster.condition("VerdictLate")
    assert (late["status"], late["reason"]) == ("True", "TooLittleTraffic")
    assert late["message"].startswith("at 0.4 requests/s a verdict takes about ")
    assert "send more requests, or write spec.rollout.observe.maxDuration: " in late["message"]
    assert [told for told in it.told if told.startswith("VerdictLate")] != []
    it.cluster.figures = {green: figures(600, 0, seconds=50)}
    it.work(20)
    assert not it.cluster.condition("VerdictLate"), "the traffic came"


def test_without_a_limit_in_the_spec_no_verdict_is_late() -> None:
    it = Rollout(observe={"duration": 60, "maxDuration": 60})
    green = it.switched()
    it.cluster.figures = {green: figures(12, 0, seconds=30)}
    it.work(30)
    assert not it.cluster.condition("VerdictLate")


def test_an_account_of_the_same_figures_is_not_written_again() -> None:
    it, green = observing()
    it.cluster.figures = {green: figures(100, 1, seconds=20)}
    it.work(20)
    before = it.cluster.status["rollout"]
    it.cluster.figures = {green: replace(figures(100, 1, seconds=20), seconds=22.0)}
    it.work(15)
    assert it.cluster.status["rollout"] == before
