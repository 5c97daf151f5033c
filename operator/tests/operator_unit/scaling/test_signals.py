"""docs/concepts/autoscaling.md: what each signal recommends, from totals, and that a missing figure is never 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.scaling.crowd import Crowd
from llmendpoint_operator.core.scaling.demand import Demand, FirstTokens, Load, Reading, Report, combine
from llmendpoint_operator.core.scaling.scene import Scene
from llmendpoint_operator.core.scaling.signals import recommend

from ..scaling_stage import BEGIN, Stage, loads, pods, rules


def asked(demand: Demand, current: int, *, ready: int | None = None, **signals: object) -> int:
    scene = Scene(rules(signals=signals), current, pods(current if ready is None else ready))
    return max(found.replicas for found in recommend(scene, demand))


@pytest.mark.parametrize(
    ("waiting", "current", "ready", "expected"),
    [
        (100, 1, 1, 26),  # 100 / 4 beyond the one that serves
        (1, 2, 2, 3),
        (0, 3, 3, 0),
        (100, 26, 1, 26),  # those that are starting were asked for already
        (104, 26, 1, 27),
        (3, 0, 0, 1),
    ],
)
def test_queue_depth_asks_for_replicas_beyond_those_that_serve(
    waiting: int, current: int, ready: int, expected: int
) -> None:
    assert asked(Demand(waiting), current, ready=ready, queueDepth={"target": 4}) == expected


def test_queue_depth_lowers_only_when_all_fits_eighty_percent_of_the_remaining_sequences() -> None:
    target = {"target": 4}
    assert asked(Demand(loads=loads(10, running=7)), 10, queueDepth=target) == 10
    assert asked(Demand(loads=loads(10, running=4)), 10, queueDepth=target) == 7  # 40 / 6.4
    assert asked(Demand(loads=loads(10, running=0)), 10, queueDepth=target) == 0


@pytest.mark.parametrize(
    ("demand", "ready", "said"),
    [
        (Demand(100), 1, "queueDepth 100 waiting / target 4 + 1 ready"),
        (Demand(3), 0, "queueDepth 3 waiting / target 4"),
        (Demand(), 0, "queueDepth 0 waiting / target 4; 0 requests run or wait"),
        (
            Demand(loads=loads(10, running=4)),
            10,
            "queueDepth 0 waiting / target 4; 40 requests need 7 replicas with 8 sequences, filled to 80 %",
        ),
    ],
)
def test_queue_depth_says_how_its_number_comes_about(demand: Demand, ready: int, said: str) -> None:
    scene = Scene(rules(signals={"queueDepth": {"target": 4}}), ready, pods(ready))
    assert recommend(scene, demand)[0].said == said


def test_queue_depth_holds_where_nobody_says_how_much_a_replica_takes() -> None:
    scene = Scene(rules(), 5, pods(5))
    busy = Demand(in_flight={"p0": 1})
    found = recommend(scene, busy)[0]
    assert (found.replicas, found.lowers) == (5, False)
    idle = recommend(scene, Demand(in_flight={"p0": 0}))[0]
    assert (idle.replicas, idle.lowers) == (0, True)
    known = Scene(rules(), 5, pods(5), max_num_seqs=8)
    assert recommend(known, busy)[0].replicas == 1


def test_a_request_that_waits_in_a_replica_with_room_is_no_queue() -> None:
    assert Load(running=2, waiting=3, kv_usage=0.2, max_num_seqs=8).queued == 0
    assert Load(running=7, waiting=3, kv_usage=0.2, max_num_seqs=8).queued == 2
    assert Load(running=8, waiting=3, kv_usage=0.2, max_num_seqs=8).queued == 3
    assert Load(running=2, waiting=3, kv_usage=0.95, max_num_seqs=8).queued == 3


def test_concurrency_divides_requests_by_the_target_and_leaves_ten_percent_alone() -> None:
    target = {"target": 8}
    assert asked(Demand(waiting=8, in_flight={"p0": 8}), 1, concurrency=target) == 2
    assert asked(Demand(in_flight={"p0": 8, "p1": 9}), 2, concurrency=target) == 2
    assert asked(Demand(in_flight={"p0": 9, "p1": 9}), 2, concurrency=target) == 3


def test_kv_cache_counts_a_replica_that_does_not_tell_as_empty_for_up_and_as_full_for_down() -> None:
    target = {"target": 0.5}
    known = loads(3, running=1, kv=0.9)
    assert asked(Demand(loads=known), 3, kvCacheUtilization=target) == 6
    del known["p2"]
    assert asked(Demand(loads=known), 3, kvCacheUtilization=target) == 4  # 1.8 / 0.5
    low = loads(4, running=1, kv=0.1)
    assert asked(Demand(loads=low), 4, kvCacheUtilization=target) == 1
    del low["p3"]
    assert asked(Demand(loads=low), 4, kvCacheUtilization=target) == 3  # 1.3 / 0.5


def test_kv_cache_has_no_opinion_while_no_engine_tells() -> None:
    found = recommend(Scene(rules(signals={"kvCacheUtilization": {"target": 0.5}}), 3, pods(3)), Demand())
    assert [(f.replicas, f.lowers) for f in found] == [(3, False)]


def test_the_largest_recommendation_is_of_the_signal_that_needs_most() -> None:
    demand = Demand(waiting=2, in_flight={"p0": 30}, loads=loads(1, running=8, kv=0.9))
    signals = {
        "queueDepth": {"target": 4},
        "concurrency": {"target": 8},
        "kvCacheUtilization": {"target": 0.8},
    }
    assert asked(demand, 1, **signals) == 4


def test_gateways_add_up_while_of_each_load_the_freshest_reading_counts() -> None:
    old, new = Load(1, 0, 0.1, 8, read_at=9.1), Load(5, 0, 0.5, 8, read_at=9.9)
    reports = {
        "a": Report(2, {"p0": Reading(3, old), "p1": Reading(1)}),
        "b": Report(1, {"p0": Reading(2, new)}),
    }
    demand = combine(reports)
    assert demand == Demand(3, {"p0": 5, "p1": 1}, {"p0": new})
    assert demand.requests == 9


def test_a_silent_gateway_is_told_apart_from_one_without_requests() -> None:
    assert combine({"a": None}) is None
    assert combine({}) is None
    partial = combine({"a": None, "b": Report()})
    assert partial is not None
    assert partial.partial
    assert partial.silent == ("a",)


def test_a_caller_that_goes_past_the_gateway_is_counted_by_the_engine() -> None:
    assert Demand(in_flight={"p0": 1}, loads=loads(1, running=4, waiting=2)).requests == 6


LATE = {"queueDepth": {"target": 4}, "ttft": {"target": 1}}


def busy(requests: int, replicas: int, p95: float, of: int = 50) -> Demand:
    """So many requests on as many replicas, in engines with room."""
    shares = {pod: requests // replicas + (i < requests % replicas) for i, pod in enumerate(pods(replicas))}
    return Demand(0, shares, first_tokens=FirstTokens(p95, of))


def test_a_late_first_token_asks_for_one_replica_more_and_not_for_a_second_before_it_serves() -> None:
    assert asked(busy(8, 2, 1.5), 2, **LATE) == 3
    assert asked(busy(8, 2, 9.0), 2, **LATE) == 3  # nine times as late is no nine times the load
    assert asked(busy(8, 2, 1.5), 3, ready=2, **LATE) == 3
    loading = Scene(rules(signals=LATE), 2, pods(2), loading=True)
    assert max(found.replicas for found in recommend(loading, busy(8, 2, 1.5))) == 2


@pytest.mark.parametrize(
    "demand",
    [
        busy(8, 2, 0.9),  # in time
        busy(8, 2, 5.0, of=19),  # too few to tell
        busy(2, 2, 5.0),  # each has a replica to itself
        Demand(0, {"p0": 4, "p1": 4}),  # unknown
    ],
)
def test_it_asks_for_nothing_without_evidence_that_a_replica_would_help(demand: Demand) -> None:
    scene = Scene(rules(signals=LATE), 2, pods(2), max_num_seqs=8)
    [queue, ttft] = recommend(scene, demand)
    assert (ttft.replicas, ttft.lowers) == (0, True)
    assert queue.replicas <= 2


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 500))
def test_what_a_crowd_asks_for_is_the_least_that_is_less_crowded(
    requests: int, replicas: int, now: int
) -> None:
    least = Crowd(BEGIN, requests, replicas).least_for(now)
    assert now / least < requests / replicas
    assert least == 1 or now * replicas >= requests * (least - 1)


def test_after_a_late_first_token_the_number_does_not_go_back_to_where_it_came_late_for_an_hour() -> None:
    stage = Stage(rules(signals=LATE), current=2, max_num_seqs=64)
    stage.demand = busy(8, 2, 1.5)
    assert stage.poll().replicas == 3
    stage.demand = busy(8, 3, 0.2)
    assert stage.poll(200).replicas == 3
    stage.demand = busy(3, 3, 0.2)
    assert stage.poll(30).replicas == 1  # less crowded there than it was
    again = Stage(rules(signals=LATE), current=2, max_num_seqs=64, demand=busy(8, 2, 1.5))
    again.poll()
    again.demand = busy(8, 3, 0.2)
    assert again.poll(3600 // 15 + 30).replicas == 1  # forgotten
