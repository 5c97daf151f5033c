"""docs/concepts/autoscaling.md: the number follows signals, windows, cooldown, fallback and schedules as the page says.

KEDA's scenarios are rebuilt here: fallback, idle replicas, polling and cooldown, activation.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.scaling.demand import Demand
from llmendpoint_operator.core.scaling.outcome import Reason

from ..scaling_stage import Stage, loads, rules


def test_a_queue_of_100_on_one_replica_reaches_the_maximum_in_three_polls() -> None:
    stage = Stage(rules(maxReplicas=20), demand=Demand(waiting=100), ready=1)
    stage.poll(3)
    assert stage.current == 20
    assert stage.counts == [20, 20, 20]


def test_a_queue_of_100_reaches_the_maximum_in_three_polls_with_an_autoscalers_own_rates() -> None:
    policies = [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ]
    stage = Stage(rules(maxReplicas=20, behavior={"scaleUp": {"policies": policies}}))
    stage.demand = Demand(waiting=100)
    stage.poll(3)
    assert stage.counts == [5, 10, 20]


def test_constant_load_at_ninety_percent_without_a_queue_changes_nothing_for_ten_windows() -> None:
    stage = Stage(current=5, demand=Demand(loads=loads(5, running=9, sequences=10)))
    stage.poll(10 * 300 // 15)
    assert set(stage.counts) == {5}


def test_load_that_is_gone_lowers_only_after_the_window() -> None:
    stage = Stage(current=5, demand=Demand(loads=loads(5, running=8)))
    stage.poll(4)
    stage.demand = Demand(loads=loads(5, running=0))
    stage.poll(300 // 15 - 1)
    assert set(stage.counts) == {5}
    stage.poll()
    assert stage.current == 1
    assert stage.last is not None
    assert stage.last.change is not None
    assert stage.last.change.reason is Reason.SIGNALS
    assert "0 requests" in stage.last.change.message


def test_a_peak_within_the_window_is_what_is_gone_down_to() -> None:
    stage = Stage(current=8, demand=Demand(loads=loads(8, running=0)))
    stage.poll(10)
    stage.demand = Demand(loads=loads(3, running=8))  # 24 of 8 x 0.8 a replica: 4 replicas
    stage.poll()
    stage.demand = Demand(loads=loads(8, running=0))
    stage.poll(10)
    assert stage.current == 4


def test_metrics_that_are_gone_change_nothing_and_then_the_fallback_holds() -> None:
    stage = Stage(rules(fallback={"failureThreshold": 3, "replicas": 6}), current=2)
    stage.demand = None
    stage.poll(2)
    assert stage.current == 2
    assert stage.last is not None
    assert stage.last.outlook is None
    change = stage.poll().change
    assert stage.current == 6
    assert change is not None
    assert change.reason is Reason.FALLBACK
    assert change.event.type == "Warning"


@pytest.mark.parametrize(
    ("behavior", "current", "expected"),
    [
        ("static", 2, 5),
        ("static", 8, 5),
        ("currentReplicas", 2, 2),
        ("currentReplicasIfHigher", 2, 5),
        ("currentReplicasIfHigher", 8, 8),
        ("currentReplicasIfLower", 2, 2),
        ("currentReplicasIfLower", 8, 5),
    ],
)
def test_fallback_behaviours(behavior: str, current: int, expected: int) -> None:
    fallback = {"failureThreshold": 1, "replicas": 5, "behavior": behavior}
    stage = Stage(rules(fallback=fallback), current=current, demand=None)
    stage.poll()
    assert stage.current == expected


def test_after_a_fallback_the_count_goes_down_only_after_the_window() -> None:
    stage = Stage(rules(fallback={"failureThreshold": 1, "replicas": 6}), current=2, demand=None)
    stage.poll()
    stage.demand = Demand(loads=loads(6, running=0))
    stage.poll(300 // 15 - 1)
    assert stage.current == 6
    stage.poll()
    assert stage.current == 1


def test_an_engine_that_tells_no_load_may_sleep() -> None:
    signals = {"kvCacheUtilization": {"target": 0.8}}
    stage = Stage(
        rules(minReplicas=0, cooldownPeriod=60, signals=signals), demand=Demand(in_flight={"p0": 0})
    )
    stage.poll(5)
    assert stage.current == 0


def test_a_silent_gateway_does_not_wake_an_endpoint_at_zero() -> None:
    stage = Stage(rules(minReplicas=0), current=0, demand=Demand(silent=("gw-1",)))
    stage.poll(10)
    assert stage.current == 0


def test_the_fallback_holds_for_an_endpoint_at_zero_too() -> None:
    stage = Stage(rules(minReplicas=0, fallback={"failureThreshold": 2, "replicas": 2}), current=0)
    stage.demand = None
    stage.poll(2)
    assert stage.current == 2


def test_a_figure_in_between_begins_the_count_of_failures_anew() -> None:
    stage = Stage(rules(fallback={"failureThreshold": 3, "replicas": 6}), current=2)
    for known in (False, False, True, False, False):
        stage.demand = Demand(loads=loads(2, running=6)) if known else None
        stage.poll()
    assert set(stage.counts) == {2}


def test_without_a_fallback_a_blind_scaler_keeps_the_count_and_says_so() -> None:
    stage = Stage(current=4, demand=None)
    stage.poll(20)
    assert set(stage.counts) == {4}
    assert stage.last is not None
    assert stage.last.outlook is not None
    assert (stage.last.outlook.reason, stage.last.outlook.partly) == ("NoFigures", False)


def test_a_silent_gateway_allows_more_replicas_and_forbids_fewer() -> None:
    stage = Stage(current=3, demand=Demand(silent=("gw-1",)))
    stage.poll(60)
    assert stage.current == 3
    stage.demand = Demand(waiting=8, silent=("gw-1",))
    stage.poll()
    assert stage.current == 5
    assert stage.last is not None
    assert stage.last.outlook is not None
    assert "gw-1" in stage.last.outlook.blind


def test_one_broken_pods_metrics_hold_up_neither_way() -> None:
    known = loads(4, running=8)
    del known["p3"]
    stage = Stage(current=4, demand=Demand(waiting=8, in_flight={"p3": 8}, loads=known))
    stage.poll()
    assert stage.current == 6
    idle = loads(6, running=0)
    del idle["p3"]
    stage.demand = Demand(in_flight={"p3": 0}, loads=idle)
    stage.poll(60)
    assert stage.current == 1


def test_nothing_is_lowered_while_a_replica_loads() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=0), current=3, ready=1, loading=True)
    stage.poll(60)
    assert set(stage.counts) == {3}
    stage.loading = False
    stage.poll()
    assert stage.current == 0


def test_a_lower_maximum_is_followed_while_a_replica_loads() -> None:
    stage = Stage(rules(maxReplicas=2), current=3, ready=1, loading=True)
    assert stage.look().replicas == 2


def test_nothing_is_lowered_before_a_revision_has_served() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=0), ready=0, served=False)
    stage.poll(60)
    assert stage.current == 1


def test_a_new_leader_does_not_flap() -> None:
    stage = Stage(current=5, demand=Demand(loads=loads(5, running=8)))
    stage.poll(20)
    stage.new_leader()
    stage.demand = None
    stage.look()
    stage.demand = Demand(loads=loads(5, running=0))
    stage.poll(300 // 15 - 1)
    assert set(stage.counts) == {5}


def test_before_the_next_poll_is_due_nothing_is_decided() -> None:
    stage = Stage(demand=Demand(waiting=100))
    stage.poll()
    stage.current, stage.demand = 1, Demand(waiting=40)
    assert stage.look().replicas == 1


# --- between none and one


def sleeper(**fields: Any) -> Stage:
    return Stage(rules(minReplicas=0, **fields), current=0)


def test_a_request_held_at_zero_makes_a_replica_without_waiting_for_a_poll() -> None:
    stage = sleeper(pollingInterval=3600)
    stage.look()
    stage.demand, stage.now = Demand(waiting=1), stage.now + timedelta(milliseconds=50)
    found = stage.look()
    assert found.replicas == 1
    assert found.change is not None
    assert found.change.reason is Reason.ACTIVATED


def test_a_hundred_requests_held_at_zero_make_as_many_replicas_as_they_need() -> None:
    stage = sleeper()
    stage.demand = Demand(waiting=20)
    assert stage.look().replicas == 5


def test_requests_at_or_below_the_activation_threshold_wake_nobody() -> None:
    stage = sleeper(activationThreshold=3)
    stage.demand = Demand(waiting=3)
    stage.poll(10)
    assert stage.current == 0
    stage.demand = Demand(waiting=4)
    assert stage.look().replicas == 1


def test_an_endpoint_that_nobody_calls_goes_to_zero_after_the_cooldown_and_not_before() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=120, pollingInterval=30), current=3)
    stage.demand = Demand(in_flight={"p0": 1}, loads=loads(3, running=0))
    stage.poll(2)
    stage.demand = Demand(loads=loads(3, running=0))
    stage.poll(3)
    assert stage.current == 3
    found = stage.poll()
    assert found.replicas == 0
    assert found.change is not None
    assert found.change.reason is Reason.IDLE


def test_a_call_between_two_polls_begins_the_cooldown_anew() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=60, pollingInterval=30))
    stage.poll()
    assert stage.memory is not None
    stage.memory = replace(stage.memory, active_at=stage.now + timedelta(seconds=25))
    stage.poll(2)
    assert stage.current == 1
    stage.poll()
    assert stage.current == 0


def test_idle_replicas_hold_while_nobody_calls_and_the_minimum_as_soon_as_somebody_does() -> None:
    stage = Stage(rules(minReplicas=2, idleReplicas=0, cooldownPeriod=30), current=2)
    stage.poll(3)
    assert stage.current == 0
    stage.demand = Demand(waiting=1)
    assert stage.look().replicas == 2


def test_a_minimum_above_zero_without_idle_replicas_never_goes_below() -> None:
    stage = Stage(rules(minReplicas=2), current=4)
    stage.poll(100)
    assert stage.current == 2


def test_nobody_sleeps_where_requests_would_not_be_held() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=0), demand=Demand(held=False))
    stage.poll(30)
    assert stage.current == 1
    stage.current = 0
    stage.poll()
    assert stage.current == 1


def test_nobody_sleeps_while_a_gateway_is_silent() -> None:
    stage = Stage(rules(minReplicas=0, cooldownPeriod=0), demand=Demand(silent=("gw-1",)))
    stage.poll(10)
    assert stage.current == 1


# --- bounds


def test_a_higher_minimum_holds_at_once_and_without_figures() -> None:
    stage = Stage(rules(minReplicas=4), current=1, demand=None)
    found = stage.look()
    assert found.replicas == 4
    assert found.change is not None
    assert found.change.reason is Reason.BOUNDS


def test_a_schedule_warms_an_endpoint_up_before_the_morning_and_lets_it_go_in_the_evening() -> None:
    morning = {"name": "office", "start": "30 7 * * mon-fri", "end": "0 18 * * mon-fri", "minReplicas": 3}
    stage = Stage(rules(minReplicas=0, cooldownPeriod=60, pollingInterval=60, schedules=[morning]), current=0)
    counts = {}
    for _ in range(14 * 60):
        stage.poll()
        counts[stage.now.strftime("%H:%M")] = stage.current
    assert (counts["07:29"], counts["07:30"], counts["12:00"], counts["17:59"]) == (0, 3, 3, 3)
    assert counts["18:00"] == 0


def test_a_schedule_that_never_comes_is_said_and_the_other_bounds_hold() -> None:
    never = {"name": "leap", "start": "0 0 31 2 *", "end": "0 1 * * *", "minReplicas": 9}
    stage = Stage(rules(minReplicas=2, schedules=[never]), current=2)
    found = stage.poll()
    assert found.replicas == 2
    assert found.outlook is not None
    assert found.outlook.reason == "ScheduleInvalid"
    assert "autoscaling.schedules[leap]: start" in found.outlook.message


def test_signals_that_ask_for_more_than_the_maximum_are_said() -> None:
    found = Stage(rules(maxReplicas=2), demand=Demand(waiting=100)).poll()
    assert found.replicas == 2
    assert found.outlook is not None
    assert found.outlook.reason == "AtMaximum"


# --- behaviour


def test_a_window_for_up_takes_the_smallest_recommendation_of_its_time() -> None:
    stage = Stage(rules(behavior={"scaleUp": {"stabilizationWindowSeconds": 60}}))
    stage.demand = Demand(waiting=40)
    stage.poll(3)
    assert stage.current == 1
    stage.poll()
    assert stage.current == 10


def test_a_policy_limits_how_fast_the_count_goes_down() -> None:
    down = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    }
    stage = Stage(rules(behavior={"scaleDown": down}), current=4)
    stage.poll(9)
    assert stage.counts == [3, 3, 3, 3, 2, 2, 2, 2, 1]


def test_a_disabled_direction_is_not_taken() -> None:
    stage = Stage(
        rules(behavior={"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}),
        current=4,
    )
    stage.poll(5)
    assert stage.current == 4


def test_the_message_of_a_change_has_the_figures() -> None:
    change = Stage(demand=Demand(waiting=100)).poll().change
    assert change is not None
    assert change.event.reason == "ScaledUp"
    assert change.event.message == (
        "replicas 1 -> 10 (Signals): queueDepth 100 waiting / target 4 + 1 ready; recommended: 26; bounds are 1 to 10"
    )
