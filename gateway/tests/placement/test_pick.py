"""docs/concepts/architecture.md: a request goes to the Ready replica with the fewest outstanding requests, and to no ejected one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.departed import Departed
from llmendpoint_gateway.core.endpoint.endpoint_settings import CircuitSettings
from llmendpoint_gateway.core.endpoint.loads import Loads
from llmendpoint_gateway.core.endpoint.objects import Assignment
from llmendpoint_gateway.core.outcome.attempt import Outcome
from llmendpoint_gateway.core.placement.endpoint_breaker import Circuits
from llmendpoint_gateway.core.placement.in_flight import InFlight
from llmendpoint_gateway.core.placement.pick import (
    MOST_REPLICAS,
    Picked,
    PickState,
    least_loaded,
    place,
    resolve,
)
from llmendpoint_gateway.core.placement.replica_breaker import (
    EJECTION_SECONDS,
    FIRST_SECONDS,
    MISSES,
    Breakers,
)
from llmendpoint_gateway.core.placement.rotation import Rotation
from llmendpoint_gateway.core.placement.routing import Route, Table, Target
from llmendpoint_gateway.core.request.refusals import Rejected, queue_full

A, B, C, D = (f"10.0.0.{n}:8000" for n in (1, 2, 3, 4))
CLUSTER = "a/chat/r1"
NAMES = {"chat": "a/chat", "a/chat": "a/chat", "b": "a/b"}
ROUTE = Route(Assignment(1, (("r1", 100),)), (Target("r1", CLUSTER, (A, B, C)),))


def state_of(
    route: Route,
    in_flight: dict[str, dict[str, int]] | None = None,
    breakers: Breakers | None = None,
    limits: dict[str, int] | None = None,
    circuits: Circuits | None = None,
) -> PickState:
    counts, loads = InFlight(), Loads()
    for cluster, load in (in_flight or {}).items():
        for address, number in load.items():
            for _ in range(number):
                counts.take(cluster, address)
    loads.limits.update(limits or {})
    table, circuits = Table(NAMES, {"a/chat": route}), circuits or Circuits(0.0)
    return PickState(table, Rotation(), counts, breakers or Breakers(), circuits, loads)


def pick(name: str, state: PickState, tie: int, now: float, stale: bool) -> Picked | Rejected:
    """Resolve and place."""
    key = resolve(name, state.table.names, Departed(), now)
    return key if isinstance(key, Rejected) else place(key, state, tie, now, stale)


def decide(
    name: str = "chat",
    load: dict[str, int] | None = None,
    breakers: Breakers | None = None,
    tie: int = 0,
    now: float = 0,
    stale: bool = False,
    route: Route = ROUTE,
    limits: dict[str, int] | None = None,
    circuits: Circuits | None = None,
) -> Picked | Rejected:
    return pick(name, state_of(route, {CLUSTER: load or {}}, breakers, limits, circuits), tie, now, stale)


def picked(**more) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
    decision = decide(**more)
    assert isinstance(decision, Picked)
    assert (decision.endpoint, decision.cluster) == ("a/chat", CLUSTER)
    return decision.addresses


def unreachable(*addresses: str, trials: int = 0) -> Breakers:
    """Breakers that opened for these at 0, and again for as many trials that failed as soon as they were due."""
    breakers = Breakers()
    for address in addresses:
        breakers.report(address, Outcome.UNREACHABLE, 0, trial=False)
        for _ in range(trials):
            breakers.report(address, Outcome.UNREACHABLE, FIRST_SECONDS, trial=True)
    return breakers


def test_the_replica_with_the_fewest_requests_in_flight_comes_first_and_the_next_takes_the_retry() -> None:
    assert picked(load={A: 3, B: 1, C: 2}) == (B, C)
    assert picked(load={A: 1}) == (B, C)


def test_equals_take_turns() -> None:
    assert [picked(tie=n)[0] for n in range(4)] == [A, B, C, A]
    assert [picked(load={A: 5}, tie=n)[0] for n in range(3)] == [B, B, C]


def test_an_ejected_replica_is_left_out_and_takes_no_retry() -> None:
    assert picked(breakers=unreachable(A)) == (B, C)
    assert picked(breakers=unreachable(A, C)) == (B,)


def test_with_all_ejected_the_least_bad_are_tried_rather_than_the_request_refused() -> None:
    breakers = unreachable(A, B, C)
    breakers.report(B, Outcome.UNREACHABLE, FIRST_SECONDS, trial=True)
    decision = decide(breakers=breakers, now=1)
    assert decision == Picked("a/chat", CLUSTER, (A, C), trial=True)


def test_a_half_open_replica_takes_one_trial_at_a_time_and_never_the_retry() -> None:
    breakers = unreachable(A)
    first = decide(breakers=breakers, now=FIRST_SECONDS, tie=0, load={B: 1, C: 1})
    assert first == Picked("a/chat", CLUSTER, (A, B), trial=True)
    breakers.trial_began(A, FIRST_SECONDS)
    assert decide(breakers=breakers, now=FIRST_SECONDS, load={B: 1, C: 1}) == Picked(
        "a/chat", CLUSTER, (B, C)
    )
    breakers.report(A, Outcome.ANSWERED, FIRST_SECONDS, trial=True)
    assert decide(breakers=breakers, now=FIRST_SECONDS, load={B: 1, C: 1}) == Picked(
        "a/chat", CLUSTER, (A, B)
    )


def lost(*addresses: str) -> Breakers:
    breakers = unreachable(*addresses)
    for address in addresses:
        for _ in range(MISSES):
            breakers.report(address, Outcome.UNREACHABLE, 0, trial=True)
    return breakers


def test_when_nobody_of_a_new_revision_is_there_the_one_before_takes_over() -> None:
    blue = Target("r0", "a/chat/r0", (D,))
    green = Route(ROUTE.assignment, (Target("r1", CLUSTER, (A, B)),), (blue,), standby=blue)
    back = Picked("a/chat", "a/chat/r0", (D,))
    assert decide(route=green, breakers=lost(A, B)) == back
    assert decide(route=Route(ROUTE.assignment, (), (blue,), standby=blue)) == back
    assert picked(route=green, breakers=lost(A)) == (B,)
    assert picked(route=green, breakers=unreachable(A, B))[0] in (A, B)  # one miss may be a lost packet
    trial = decide(route=green, breakers=lost(A, B), now=FIRST_SECONDS)
    assert isinstance(trial, Picked)
    assert (trial.cluster, trial.trial) == (CLUSTER, True)


def test_a_revision_that_is_lost_gives_its_share_to_the_others() -> None:
    blue, green = Target("r0", "a/chat/r0", (D,), 50), Target("r1", CLUSTER, (A, B), 50)
    route = Route(Assignment(2, (("r0", 50), ("r1", 50))), (blue, green))
    state = state_of(route, breakers=lost(A, B))
    decisions = [pick("chat", state, n, 0, False) for n in range(10)]
    assert {d.cluster for d in decisions if isinstance(d, Picked)} == {"a/chat/r0"}
    state = replace(state, breakers=lost(A, B, D))
    decisions = [pick("chat", state, n, 0, False) for n in range(10)]
    assert {d.cluster for d in decisions if isinstance(d, Picked)} == {"a/chat/r0", CLUSTER}


def test_a_gateway_that_is_cut_off_falls_back_to_any_ready_revision() -> None:
    other = Target("r2", "a/chat/r2", (D,))
    lost = Route(ROUTE.assignment, (Target("r1", CLUSTER, (A, B)),), (other,))
    fallback = Picked("a/chat", "a/chat/r2", (D,))
    assert decide(route=lost, breakers=unreachable(A, B), stale=True) == fallback
    assert decide(route=Route(ROUTE.assignment, (), (other,)), stale=True) == fallback
    # With the API server in reach the operator decides, and a replica that is left is used.
    assert isinstance(decide(route=Route(ROUTE.assignment, (), (other,))), Rejected)
    assert picked(route=lost, breakers=unreachable(A, B), now=1)[0] in (A, B)
    assert picked(route=lost, breakers=unreachable(A), stale=True) == (B,)


def test_a_replica_that_stays_away_is_tried_less_and_less_often() -> None:
    breakers = unreachable(A, trials=1)
    assert A not in picked(breakers=breakers, now=FIRST_SECONDS + EJECTION_SECONDS - 1)
    assert picked(breakers=breakers, now=FIRST_SECONDS + EJECTION_SECONDS, load={B: 1, C: 1})[0] == A


def test_a_replica_at_its_limit_is_left_out_and_with_all_at_theirs_the_request_may_wait() -> None:
    assert picked(load={A: 1, B: 2, C: 3}, limits={A: 1}) == (B, C)
    assert picked(load={A: 1, B: 2, C: 3}, limits={A: 1, B: 2}) == (C,)
    assert picked(load={A: 9, B: 9, C: 9}, limits={A: 9, B: 10})[0] in (B, C)
    decision = decide(load={A: 1, B: 2, C: 3}, limits={A: 1, B: 2, C: 0})
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code, decision.awaited) == (503, "queue_timeout", "a/chat")
    assert decision.retry_after


def test_a_replica_at_its_limit_is_not_relieved_by_one_that_is_ejected_but_by_its_trial() -> None:
    route = Route(ROUTE.assignment, (Target("r1", CLUSTER, (A, B)),))
    full = {"load": {A: 2, B: 0}, "limits": {A: 2}, "route": route}
    assert isinstance(decide(breakers=unreachable(B), now=1, **full), Rejected)  # type: ignore[arg-type]
    trial = decide(breakers=unreachable(B), now=FIRST_SECONDS, **full)  # type: ignore[arg-type]
    assert trial == Picked("a/chat", CLUSTER, (B, A), trial=True)


def test_a_revision_at_its_limit_gives_its_share_to_one_with_room() -> None:
    parts = (Target("r0", "a/chat/r0", (D,), 90), Target("r1", CLUSTER, (A, B), 10))
    route = Route(Assignment(2, (("r0", 90), ("r1", 10))), parts)
    state = state_of(route, {"a/chat/r0": {D: 4}}, limits={D: 4, A: 9, B: 9})
    decisions = [pick("chat", state, 0, 0, False) for _ in range(10)]
    assert {d.cluster for d in decisions if isinstance(d, Picked)} == {CLUSTER}


@pytest.mark.parametrize(("seconds", "after"), [(None, 5), (0.1, 1), (7.2, 8), (500.0, 30)])
def test_who_finds_the_queue_full_is_told_to_come_when_it_has_moved_on(
    seconds: float | None, after: int
) -> None:
    full = queue_full("a/chat", 1000, seconds)
    assert (full.status, full.code, full.retry_after) == (429, "queue_full", after)


CAREFUL = replace(ROUTE, circuit=CircuitSettings(open_seconds=10))


def test_with_every_replica_lost_the_endpoints_breaker_opens_and_says_when_to_come_back() -> None:
    circuits = Circuits(0.0)
    decision = decide(route=CAREFUL, breakers=lost(A, B, C), circuits=circuits, now=1)
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code, decision.retry_after) == (503, "circuit_open", 10)
    assert decision.awaited is None
    assert circuits.open == {"a/chat"}
    later = decide(route=CAREFUL, breakers=lost(A, B, C), circuits=circuits, now=2.5)
    assert isinstance(later, Rejected)
    assert later.retry_after == 9


def test_a_breaker_of_lost_replicas_lets_their_trials_through_and_ends_with_the_first_that_is_back() -> None:
    circuits, breakers = Circuits(0.0), lost(A, B, C)
    decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=1)
    trial = decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=FIRST_SECONDS)
    assert isinstance(trial, Picked)
    assert trial.trial
    breakers.report(A, Outcome.ANSWERED, FIRST_SECONDS, trial=True)
    decision = decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=FIRST_SECONDS + 1)
    assert isinstance(decision, Picked)


def test_the_endpoints_breaker_tries_the_least_bad_when_its_time_is_over_however_long_theirs_is() -> None:
    circuits, breakers = Circuits(0.0), unreachable(A, B, C, trials=4)
    begun = FIRST_SECONDS
    assert isinstance(decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=begun), Rejected)
    trial = decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=begun + 10)
    assert isinstance(trial, Picked)
    assert trial.trial
    circuits.trial_began("a/chat", begun + 10)
    refused = decide(route=CAREFUL, breakers=breakers, circuits=circuits, now=begun + 10)
    assert isinstance(refused, Rejected)
    assert refused.retry_after == 1


def test_the_endpoints_breaker_has_no_say_where_a_rollout_judges_or_another_revision_takes_over() -> None:
    circuits = Circuits(0.0)
    assert isinstance(decide(breakers=lost(A, B, C), circuits=circuits, now=1), Picked)
    other = Target("r2", "a/chat/r2", (D,))
    cut_off = replace(CAREFUL, others=(other,))
    fallback = decide(route=cut_off, breakers=lost(A, B, C), circuits=circuits, now=1, stale=True)
    assert fallback == Picked("a/chat", "a/chat/r2", (D,))
    assert not circuits.open


def test_an_error_rate_refuses_though_the_replicas_are_in_the_pick_and_a_trial_goes_to_one_of_them() -> None:
    circuits = Circuits(0.0)
    for _ in range(20):
        circuits.ended("a/chat", 0.0)
        circuits.failed("a/chat", 0.0, CircuitSettings(open_seconds=10))
    assert isinstance(decide(route=CAREFUL, circuits=circuits, now=1), Rejected)
    assert decide(route=CAREFUL, circuits=circuits, now=10) == Picked("a/chat", CLUSTER, (A, B), trial=True)


def test_an_unknown_model_is_404_and_names_it_in_bounded_length() -> None:
    decision = decide("gpt-5" * 1000)
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code, decision.param) == (404, "model_not_found", "model")
    assert decision.retry_after is None
    assert "gpt-5" in decision.message
    assert len(decision.message) < 400


def test_an_endpoint_without_a_routable_replica_is_503_with_retry_after() -> None:
    decision = decide("b")
    assert isinstance(decision, Rejected)
    assert (decision.status, decision.code) == (503, "no_ready_replica")
    assert decision.retry_after


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(0, 5), min_size=n, max_size=n), st.integers(0, 1 << 40)
        )
    )
)
def test_nothing_not_picked_is_less_loaded_than_what_is(case: tuple[int, list[int], int]) -> None:
    n, counts, tie = case
    addresses = tuple(f"10.0.0.{i}:8000" for i in range(n))
    load = {a: c for a, c in zip(addresses, counts, strict=True) if c}
    chosen = least_loaded(addresses, load, tie)
    loads = [load.get(a, 0) for a in chosen]
    assert len(set(chosen)) == len(chosen) == min(n, MOST_REPLICAS)
    assert loads == sorted(counts)[: len(chosen)]


@given(st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.sampled_from([A, B])), max_size=30), st.randoms())
def test_counts_return_to_nothing_whatever_order_requests_end_in(
    taken: list[tuple[str, str]], shuffle
) -> None:  # type: ignore[no-untyped-def]
    counts = InFlight()
    for cluster, address in taken:
        counts.take(cluster, address)
    assert counts.counts.keys() == {cluster for cluster, _ in taken}
    ended = list(taken)
    shuffle.shuffle(ended)
    for n, (cluster, address) in enumerate(ended):
        last = counts.release(cluster, address)
        assert last == (cluster not in {c for c, _ in ended[n + 1 :]})
    assert counts.counts == {}
