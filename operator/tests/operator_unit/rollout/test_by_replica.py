"""docs/concepts/verdicts.md: failures of one replica are a clump, however evenly they come in time, and the status names it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.account import joined
from llmendpoint_operator.core.rollout.analysis import Result, Verdict, judge
from llmendpoint_operator.core.rollout.by_replica import MOST_REPLICAS, make_replicas
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.histograms import Histogram
from llmendpoint_operator.core.rollout.limits import Limits
from llmendpoint_operator.core.rollout.measurements import FAILED, REQUESTS, Counts, Latencies, Measurements

LIMITS = Limits(duration=60, error_rate=0.02)
Pods = dict[str, list[int]]
"""By pod: requests and errors."""


def read(
    found: Measurements, pods: Pods, gateway: str = "gw", instance: str = "i", by_pod: bool = True
) -> None:
    """One gateway's `/revisions`."""
    requests, errors = (sum(counts) for counts in zip(*pods.values(), strict=True))
    found.add_gateway(gateway, instance, {"green": Counts(requests, errors)})
    if by_pod:
        found.add_replicas(
            gateway, instance, {"green": {pod: Counts(*counts) for pod, counts in pods.items()}}
        )


def green(found: Measurements) -> Figures:
    figures = found.in_window("green")
    assert figures is not None
    return figures


def begun(pods: Pods, by_pod: bool = True) -> Measurements:
    found = Measurements(600)
    read(found, pods, by_pod=by_pod)
    found.sampled(0)
    found.begin(0)
    return found


def verdicts(rates: Sequence[float], by_pod: bool = True, looks: int = 300, seed: int = 1) -> list[Verdict]:
    """At each look, two requests come to each replica, of which so many fail. Until a revision is rolled back."""
    drawn = random.Random(seed)
    pods: Pods = {f"chat-{number}": [0, 0] for number in range(len(rates))}
    found, given = begun(pods, by_pod), list[Verdict]()
    for look in range(1, looks + 1):
        for counts, rate in zip(pods.values(), rates, strict=True):
            counts[0] += 2
            counts[1] += sum(drawn.random() < rate for _ in range(2))
        read(found, pods, by_pod=by_pod)
        found.sampled(2.0 * look)
        given.append(judge(LIMITS, green(found), None, 2.0 * look))
        if given[-1].result is Result.BAD:
            break
    return given


@pytest.mark.parametrize("seed", range(5))
def test_one_replica_of_four_that_fails_often_is_rolled_back_but_after_many_more_requests(seed: int) -> None:
    one = (0.4, 0.0, 0.0, 0.0)
    found, by_time = verdicts(one, looks=600, seed=seed), verdicts(one, by_pod=False, seed=seed)
    assert found[-1].result is by_time[-1].result is Result.BAD
    assert len(found) > 4 * len(by_time)


def test_a_burst_of_failures_of_one_replica_is_no_verdict_on_the_revision() -> None:
    assert (
        judge(LIMITS, measured_in_steps((100, 40), *[(100, 0)] * 3), None, 20.0).result is Result.TOO_LITTLE
    )
    assert judge(LIMITS, measured_in_steps(*[(100, 10)] * 4), None, 20.0).result is Result.BAD


@pytest.mark.parametrize("seed", range(5))
def test_as_many_failures_of_all_replicas_are_rolled_back_as_soon_as_without_figures_by_replica(
    seed: int,
) -> None:
    found = verdicts((0.1,) * 4, seed=seed)
    assert found[-1].result is Result.BAD
    assert len(found) == len(verdicts((0.1,) * 4, by_pod=False, seed=seed))


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rate", [0.0, 0.005])
def test_replicas_that_are_all_good_take_no_longer_to_a_good_verdict(replicas: int, rate: float) -> None:
    rates = (rate,) * replicas
    assert [one.result for one in verdicts(rates)] == [one.result for one in verdicts(rates, by_pod=False)]


def test_fewer_than_four_replicas_tell_nothing() -> None:
    assert verdicts((0.3, 0.0, 0.0))[-1].result is Result.BAD


def measured(*pods: tuple[int, int]) -> Figures:
    """By replica: requests and errors in the window."""
    found = begun({f"chat-{number}": [0, 0] for number in range(len(pods))})
    read(found, {f"chat-{number}": list(counts) for number, counts in enumerate(pods)})
    found.sampled(2)
    return green(found)


def measured_in_steps(*pods: tuple[int, int]) -> Figures:
    """The same, in ten equal samples: failures that do not come together in time."""
    found = begun({f"chat-{number}": [0, 0] for number in range(len(pods))})
    for step in range(1, 11):
        read(found, {f"chat-{n}": [r * step // 10, e * step // 10] for n, (r, e) in enumerate(pods)})
        found.sampled(2.0 * step)
    return green(found)


def test_replicas_with_hardly_any_requests_are_no_cells() -> None:
    assert measured_in_steps((100, 40), (100, 0), (100, 0), (9, 0)).clumping == 1.0
    assert measured_in_steps((100, 40), (100, 0), (100, 0), (10, 0)).clumping > 2


def test_what_replicas_show_is_added_to_no_figure() -> None:
    found = begun({"a": [0, 0], "b": [0, 0]})
    found.add_gateway("gw", "i", {"green": Counts(10, 1)})
    found.add_replicas("gw", "i", {"green": {"a": Counts(400, 200), "b": Counts(7, 0)}})
    found.sampled(2)
    assert (green(found).requests, green(found).errors) == (10, 1)


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=4, max_size=4), st.booleans()
    ),
    max_size=8,
)


@given(steps, st.integers(1, 3), st.permutations([0, 1, 2]), st.randoms(use_true_random=False))
def test_figures_by_replica_do_not_depend_on_the_number_of_gateways_their_order_or_their_restarts(
    taken: list[tuple[list[tuple[int, int]], bool]], gateways: int, order: list[int], drawn: random.Random
) -> None:
    """Each step has the good and the bad requests of four replicas, and whether the gateways start anew before it."""
    names = [f"chat-{number}" for number in range(4)]
    whole: Pods = {name: [0, 0] for name in names}
    parts: list[Pods] = [{name: [0, 0] for name in names} for _ in range(gateways)]
    one, several = begun(whole), Measurements(600)
    for number, pods in enumerate(parts):
        read(several, pods, f"gw-{number}", "0")
    several.sampled(0)
    several.begin(0)
    starts = 0
    for at, (came, restarted) in enumerate(taken, 1):
        if restarted:
            starts += 1
            parts = [{name: [0, 0] for name in names} for _ in range(gateways)]
        for name, (good, bad) in zip(names, came, strict=True):
            for errors in [0] * good + [1] * bad:
                for counts in (whole[name], drawn.choice(parts)[name]):
                    counts[0] += 1
                    counts[1] += errors
        read(one, whole)
        for number in order:
            if number < gateways:
                shown = list(parts[number].items())
                drawn.shuffle(shown)
                read(several, dict(shown), f"gw-{number}", str(starts))
        one.sampled(2.0 * at)
        several.sampled(2.0 * at)
    if taken:
        assert green(one) == green(several)


def test_a_pod_whose_counters_fell_has_begun_anew() -> None:
    found = begun({"a": [50, 50], "b": [50, 0]})
    read(found, {"a": [8, 6], "b": [60, 0]})
    found.sampled(2)
    assert green(found).worst == ("a", 6)


def test_an_error_that_is_told_after_its_request_counts() -> None:
    found = begun({"a": [0, 0], "b": [0, 0]})
    for look, errors in enumerate((4, 5)):
        read(found, {"a": [10, errors], "b": [10, 0]})
        found.sampled(2.0 * look + 2)
    assert green(found).worst == ("a", 5)


def test_a_window_has_replicas_of_its_own() -> None:
    found = begun({"a": [0, 0], "b": [0, 0]})
    read(found, {"a": [40, 38], "b": [40, 2]})
    found.sampled(2)
    found.begin(3)
    read(found, {"a": [41, 38], "b": [41, 3]})
    found.sampled(4)
    assert green(found).worst == ("b", 1)


def slow(fast: int, slower: int) -> Latencies:
    return Latencies(ttft=Histogram((0.1, 1.0, math.inf), (fast, fast + slower, fast + slower)))


def clumping_of_latencies(*pods: tuple[int, int]) -> float:
    """Of the first tokens of each pod that took longer than 100 ms, in ten equal samples."""
    found = Measurements(600)
    for number in range(len(pods)):
        found.add_engine(f"uid-{number}", "green", slow(0, 0))
    found.sampled(0)
    found.begin(0)
    for step in range(1, 11):
        for number, (fast, slower) in enumerate(pods):
            found.add_engine(f"uid-{number}", "green", slow(fast * step // 10, slower * step // 10))
        found.sampled(2.0 * step)
    tail = green(found).ttft
    assert tail is not None
    return tail.at(0).clumping


def test_one_slow_replica_is_a_clump_of_slow_requests() -> None:
    assert clumping_of_latencies((60, 40), (100, 0), (100, 0), (100, 0)) > 5
    alike = clumping_of_latencies((90, 10), (91, 9), (90, 10), (89, 11))
    assert alike == pytest.approx(1.0, abs=0.2), "then the cells of time decide, of which there are ten"


def test_engines_with_other_bounds_are_left_out() -> None:
    same = {f"p{number}": Histogram((0.1, math.inf), (60.0, 100.0)) for number in range(4)}
    assert make_replicas({**same, "q": Histogram((0.2, math.inf), (0.0, 100.0))}) == make_replicas(same)


def test_no_more_replicas_are_counted_than_a_gateway_may_tell() -> None:
    found = begun({"a": [0, 0]})
    for look in range(1, 4):
        read(found, {f"pod-{look}-{number}": [10, 1] for number in range(MOST_REPLICAS)}, instance=str(look))
        found.sampled(2.0 * look)
    cells = found._by_replica.of(("green", "requests")).cells
    assert cells is not None
    assert cells.number == MOST_REPLICAS


@pytest.mark.parametrize(
    ("pods", "blamed"),
    [
        (((100, 38), (100, 2), (100, 0)), ("chat-0", 38)),
        (((100, 3), (100, 1)), None),  # four failures
        (((100, 4), (100, 1)), ("chat-0", 4)),
        (((100, 7), (100, 3)), None),  # less than three of four
        (((100, 40), (0, 0)), None),  # only one replica got requests
        (((100, 0), (100, 0)), None),
    ],
)
def test_the_replica_that_has_most_of_the_failures_is_named(
    pods: tuple[tuple[int, int], ...], blamed: tuple[str, int] | None
) -> None:
    assert measured(*pods).blamed == blamed


def test_the_words_name_the_replica_where_a_limit_is_broken_and_where_nothing_is_known() -> None:
    spread = Figures(400, 40, worst=("chat-7f9c-abcde", 38))
    broken = judge(LIMITS, spread, None, 600)
    assert broken.message == (
        "error rate 10.0% (40 of 400 requests) is above the limit of 2.0% (spec.rollout.observe.errorRate.max)"
        "; 38 of the 40 failures are of replica chat-7f9c-abcde; less than 1 in 1,000,000 by chance"
    )
    unknown = judge(LIMITS, replace(spread, clumping=100.0), None, 600)
    assert unknown.result is Result.TOO_LITTLE
    assert unknown.message == (
        "too few requests so far to show that the error rate is at most 2.0%, within spec.rollout.observe.margin of 3%"
        "; most failures are of replica chat-7f9c-abcde"
    )
    assert unknown.findings[0].figure() == (
        "error rate 10.0% (40 of 400 requests); limit 2.0%; 38 of the 40 failures are of replica chat-7f9c-abcde"
    )
    relative = replace(LIMITS, error_rate=None, error_rate_increase=0.02)
    assert judge(relative, spread, Figures(400, 2), 600).message.count("replica chat-7f9c-abcde") == 1


def test_after_a_restart_of_the_operator_a_replica_is_named_only_if_all_failures_that_are_known_allow_it() -> (
    None
):
    after = Figures(50, 10, worst=("a", 10))
    assert joined(Figures(50, 2), after).blamed == ("a", 10)
    assert joined(Figures(50, 20), after).blamed is None


def test_requests_are_a_histogram_with_those_that_failed_above_its_first_bound() -> None:
    replicas = make_replicas({f"p{number}": Histogram(REQUESTS, (60.0, 100.0)) for number in range(4)})
    assert replicas.keys == (FAILED,)
    assert replicas.cells is not None
    assert replicas.cells.hits == (160.0,)


def test_no_more_failures_are_said_to_be_of_a_replica_than_there_are() -> None:
    assert Figures(100, 6, worst=("a", 9)).blamed == ("a", 6)
