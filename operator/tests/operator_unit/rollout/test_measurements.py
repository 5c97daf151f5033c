"""docs/concepts/rollouts.md: figures are of one window, whatever restarts, comes or goes meanwhile."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.histograms import Histogram
from llmendpoint_operator.core.rollout.measurements import Counts, Latencies, Measurements


def ttft(fast: float, slow: float) -> Latencies:
    """So many first tokens below 100 ms, and between that and 1 s."""
    return Latencies(ttft=Histogram.of({0.1: fast, 1.0: fast + slow, math.inf: fast + slow}))


def requests(figures: Figures | None) -> tuple[int, int]:
    assert figures is not None
    return figures.requests, figures.errors


def test_what_was_counted_before_the_window_is_not_in_it() -> None:
    found = Measurements(600)
    found.add_gateway("g1", "i1", {"green": Counts(100, 50)})
    found.sampled(0)
    found.begin(1)
    assert found.in_window("green") is None
    found.add_gateway("g1", "i1", {"green": Counts(130, 51)})
    found.sampled(2)
    assert requests(found.in_window("green")) == (30, 1)


def test_requests_between_the_last_sample_and_the_switch_are_in_the_window() -> None:
    found = Measurements(600)
    for at, count in ((0, 10), (2, 20)):
        found.add_gateway("g1", "i1", {"green": Counts(count, 0)})
        found.sampled(at)
    found.begin(3)
    found.add_gateway("g1", "i1", {"green": Counts(50, 5)})
    found.sampled(4)
    figures = found.in_window("green")
    assert requests(figures) == (30, 5)
    assert figures is not None
    assert figures.seconds == 2


def test_gateways_are_summed_and_a_restarted_one_counts_from_zero() -> None:
    found = Measurements(600)
    found.add_gateway("g1", "i1", {"green": Counts(100, 0)})
    found.add_gateway("g2", "j1", {})
    found.sampled(0)
    found.begin(0)
    found.add_gateway("g1", "i2", {"green": Counts(7, 1)})
    found.add_gateway("g2", "j1", {"green": Counts(3, 0)})
    found.sampled(2)
    assert requests(found.in_window("green")) == (10, 1)


def test_a_gateway_that_is_first_heard_of_in_the_window_counts_from_there() -> None:
    found = Measurements(600)
    found.sampled(0)
    found.begin(0)
    found.add_gateway("late", "i1", {"green": Counts(1000, 900)})
    found.sampled(2)
    found.add_gateway("late", "i1", {"green": Counts(1010, 900)})
    found.sampled(4)
    assert requests(found.in_window("green")) == (10, 0)


def test_percentiles_are_of_all_the_revisions_pods_in_the_window() -> None:
    found = Measurements(600)
    found.add_engine("p1", "green", ttft(0, 500))
    found.add_engine("p2", "green", ttft(0, 0))
    found.sampled(0)
    found.begin(0)
    found.add_engine("p1", "green", ttft(90, 500))
    found.add_engine("p2", "green", ttft(0, 10))
    found.sampled(2)
    figures = found.in_window("green")
    assert figures is not None
    assert figures.ttft is not None
    assert figures.ttft.p95 == pytest.approx(0.55)
    assert figures.itl is None


def test_without_gateways_first_tokens_stand_for_requests() -> None:
    found = Measurements(600)
    found.add_engine("p1", "green", ttft(5, 0))
    found.sampled(0)
    found.begin(0)
    found.add_engine("p1", "green", ttft(25, 0))
    found.sampled(2)
    assert requests(found.in_window("green")) == (20, 0)


def test_first_tokens_do_not_stand_for_requests_while_gateways_are_silent() -> None:
    found = Measurements(600)
    found.add_gateway("g1", "i1", {"green": Counts(5, 0)})
    found.sampled(0, gateways=True)
    found.begin(0)
    for at, count in ((2, 5), (4, 45)):
        found.add_engine("p1", "green", ttft(count, 0))
        found.sampled(at, gateways=True)
        assert found.in_window("green") is None, "no gateway has answered in the window"
    found.add_gateway("g1", "i1", {"green": Counts(45, 4)})
    found.sampled(6, gateways=True)
    assert requests(found.in_window("green")) == (40, 4)


def test_gateways_that_were_never_heard_give_nothing_to_compare_with() -> None:
    found = Measurements(600)
    for at, count in ((0, 0), (2, 40)):
        found.add_engine("p1", "blue", ttft(count, 0))
        found.sampled(at, gateways=True)
    assert found.recent("blue") is None


def test_recent_forgets_what_is_older_than_asked_for() -> None:
    found = Measurements(10)
    for at in range(0, 40, 2):
        found.add_gateway("g1", "i1", {"blue": Counts(at * 5, 0)})
        found.sampled(at)
    figures = found.recent("blue")
    assert requests(figures) == (50, 0)
    assert figures is not None
    assert figures.seconds == 10


def bounds(count: int, requests: float) -> Histogram:
    """As large as vLLM's, of which each reading makes new numbers."""
    return Histogram.of({0.01 * 1.5**i: requests * i / count for i in range(count)} | {math.inf: requests})


@pytest.mark.parametrize("busy", [False, True])
def test_an_endpoint_costs_little_memory_however_long_it_is_measured(busy: bool) -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found = Measurements(600)
    for sample in range(300):
        seen = bounds(21, sample if busy else 100)
        found.add_engine("p", "blue", Latencies(seen, seen, seen))
        found.sampled(2.0 * sample)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used < 150_000
    figures = found.recent("blue")
    assert figures is not None
    assert figures.requests == (299 if busy else 0)


def test_recent_reaches_back_almost_as_far_as_asked_for_and_no_farther() -> None:
    found = Measurements(600)
    for at in range(0, 2000, 2):
        found.add_gateway("g1", "i1", {"blue": Counts(at, 0)})
        found.sampled(at)
        figures = found.recent("blue")
        if at >= 600:
            assert figures is not None
            assert figures.seconds is not None
            assert 530 <= figures.seconds <= 600
            assert figures.requests == figures.seconds


def test_one_sample_is_no_measurement() -> None:
    found = Measurements(10)
    found.add_gateway("g1", "i1", {"blue": Counts(5, 0)})
    found.sampled(0)
    assert found.recent("blue") is None
    assert found.in_window("blue") is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_no_request_is_counted_twice_and_no_error_invented(steps: list[tuple[bool, int, int]]) -> None:
    found, instance, live = Measurements(600), 0, Counts()
    found.add_gateway("g", "0", {"green": live})
    found.sampled(0)
    found.begin(0)
    wanted = Counts()
    for at, (restarted, good, bad) in enumerate(steps, 1):
        if restarted:
            instance, live = instance + 1, Counts()
        live = Counts(live.requests + good + bad, live.errors + bad)
        wanted = Counts(wanted.requests + good + bad, wanted.errors + bad)
        found.add_gateway("g", str(instance), {"green": live})
        found.sampled(at)
    if steps:
        assert requests(found.in_window("green")) == (wanted.requests, wanted.errors)


looks = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=3, max_size=3), max_size=8
)


@given(looks, st.permutations([0, 1, 2]))
def test_figures_do_not_depend_on_how_many_gateways_counted_nor_on_the_order_in_which_they_were_read(
    shares: list[list[tuple[int, int]]], order: list[int]
) -> None:
    """Each look has, for each of three gateways, the requests that succeeded and those that failed."""
    one, three = Measurements(600), Measurements(600)
    totals = [[0, 0] for _ in range(3)]
    for look in range(len(shares) + 1):
        for gateway, (good, bad) in enumerate(shares[look - 1] if look else [(0, 0)] * 3):
            totals[gateway][0] += good + bad
            totals[gateway][1] += bad
        for gateway in order:
            three.add_gateway(f"gw-{gateway}", "i", {"green": Counts(*totals[gateway])})
        one.add_gateway("gw", "i", {"green": Counts(*map(sum, zip(*totals, strict=True)))})
        for found in (one, three):
            found.sampled(2.0 * look)
            if look == 0:
                found.begin(0)
    assert one.in_window("green") == three.in_window("green")


def test_what_others_have_counted_is_forgotten_and_the_figures_stay() -> None:
    found = Measurements(0)
    found.add_gateway("g1", "i1", {"blue": Counts(100, 0)})
    found.add_engine("blue-0", "blue", ttft(10, 0))
    found.sampled(0)
    found.begin(0)
    found.add_gateway("g1", "i1", {"blue": Counts(130, 1)})
    found.add_engine("blue-0", "blue", ttft(40, 0))
    found.keep({"g1"}, {"blue-0"})
    found.sampled(2)
    assert requests(found.in_window("blue")) == (30, 1)
    found.keep(set(), set())
    found.add_gateway("g1", "i1", {"blue": Counts(500, 1)})
    found.add_engine("blue-0", "blue", ttft(500, 0))
    found.sampled(4)
    figures = found.in_window("blue")
    assert requests(figures) == (30, 1), "what comes back is read for the first time"
    assert figures is not None
    assert figures.ttft is not None
    assert figures.ttft.requests == 30


def test_pods_with_the_same_bounds_share_them() -> None:
    one, other = (Histogram.of({float(at): 1.0 for at in range(1, 9)}) for _ in range(2))
    assert one.bounds is other.bounds
