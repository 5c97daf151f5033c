"""docs/benchmarks.md: what a figure of `make bench-day` is made of: a fleet in virtual time, the same every time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from tests.bench.day.fleet import Engine, Fleet, Outcome, Policy
from tests.bench.day.policies import Builtin, Fixed, Keda, in_flight
from tests.bench.day.trace import DAY_S, Arrival, Shape, arrivals

ENGINE = Engine(load_s=90, ttft_s=0.5, itl_s=0.1, sequences=2)
TEN_SECONDS = 96
"""Tokens that this engine needs 10 s for."""


def run(day: list[Arrival], policy: Policy, first: int = 1) -> Outcome:
    return Fleet(ENGINE, limit_s=2, patience_s=60, first=first).run(day, policy)


def at(*moments: float) -> list[Arrival]:
    return [Arrival(moment, TEN_SECONDS) for moment in moments]


@dataclass
class Told:
    """These counts, one look after the other."""

    counts: list[int]
    every_s: float = 1.0

    def count(self, fleet: Fleet) -> int:
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


def test_a_day_is_the_same_every_time_and_another_seed_is_another_day() -> None:
    first, again, other = (list(itertools.islice(arrivals(Shape(), seed), 200)) for seed in (1, 1, 2))
    assert first == again != other
    assert all(before.at < after.at for before, after in itertools.pairwise(first))


def test_what_finds_every_sequence_taken_waits_and_misses_its_deadline() -> None:
    outcome = run(at(1, 1, 1), Fixed(1))
    assert (outcome.requests, outcome.missed) == (3, 1)
    assert run(at(1, 1, 1), Fixed(2), first=2).missed == 0


def test_a_replica_answers_only_once_it_has_loaded() -> None:
    assert run(at(10, 10, 10), Told([2])).missed == 1
    assert run(at(100, 100, 100), Told([2])).missed == 0


def test_who_waits_for_too_long_is_refused_and_the_others_still_get_their_turn() -> None:
    crowd = at(*[1.0] * 15)
    assert run(crowd, Fixed(1)).missed == 13
    assert run([*crowd, Arrival(200, TEN_SECONDS)], Fixed(1)).missed == 13


def test_a_replica_that_leaves_costs_hours_until_its_last_answer_has_ended() -> None:
    idle = run([], Told([2, 1]), first=2)
    assert abs(idle.replica_hours * 3600 - (DAY_S + 2)) < 1
    busy = run(at(0.5, 0.5), Told([2, 1]), first=2)
    assert abs(busy.replica_hours * 3600 - (DAY_S + 10.5)) < 1


def test_both_scalers_follow_a_load_up_and_come_down_after_it() -> None:
    load = at(*(moment / 2 for moment in range(1200, 4800)))
    spec = AutoscalingSpec.model_validate({"maxReplicas": 12, "pollingInterval": 5})
    for policy in (Builtin(spec), Keda(in_flight, 1.5, 1, 12)):
        outcome = run(load, policy)
        assert outcome.most >= 10
        assert outcome.missed < outcome.requests / 2
        assert outcome.replica_hours < 24 + 11 * 1.5
