"""docs/contribute/contracts.md: a foreign engine that has generated is stuck when it owes a generation and counts no token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_probe.core.liveness import Liveness, alive, follow, owes, worked
from llmendpoint_probe.core.readiness import Event, Phase, Readiness, conclude, observe

LIMIT = 120.0


def ready(now: float) -> Readiness:
    found = observe(observe(Readiness(), Event.CONNECTED, "", now), Event.HEALTHY, "", now)
    return conclude(found, 1, Event.GENERATED, "")


def said(liveness: Liveness, now: float) -> tuple[bool, str]:
    """With a heartbeat just answered."""
    found = alive(observe(ready(now), Event.HEALTHY, "", now), liveness, now, LIMIT)
    return found.ready, found.status


def proven() -> Liveness:
    return follow(Liveness(), Phase.READY, 0)


def test_a_generation_is_owed_after_a_quarter_of_the_limit_without_evidence() -> None:
    assert owes(proven(), 29, LIMIT).owed is None
    assert owes(proven(), 30, LIMIT).owed == 30
    assert owes(worked(proven(), 20), 49, LIMIT).owed is None


def test_an_engine_that_leaves_a_generation_owed_for_the_limit_is_stuck() -> None:
    owed = owes(proven(), 30, LIMIT)
    assert said(owed, 150) == (True, "ready")
    assert said(owed, 151) == (False, "stuck")
    assert said(worked(owed, 149), 151) == (True, "ready")


def test_asking_again_does_not_begin_the_time_anew() -> None:
    assert owes(owes(proven(), 30, LIMIT), 100, LIMIT).owed == 30


def test_an_engine_that_loads_is_never_stuck_however_long_it_takes() -> None:
    assert owes(Liveness(), 1e6, LIMIT) == Liveness()


def test_a_new_run_owes_nothing() -> None:
    assert follow(owes(proven(), 30, LIMIT), Phase.AWAY, 40) == Liveness()


def test_the_engines_own_health_still_counts() -> None:
    sick = observe(ready(0), Event.UNHEALTHY, "503", 1)
    assert alive(sick, proven(), 1, LIMIT).status == "unhealthy"
    assert alive(ready(0), proven(), 10, LIMIT).status == "silent"
    assert alive(observe(ready(0), Event.LOST, "", 1), Liveness(), 1, LIMIT).status == "away"


@given(st.lists(st.tuples(st.sampled_from(["wait", "look", "work", "away", "ready"]), st.floats(0, 60))))
def test_stuck_means_proven_and_no_evidence_for_the_limit(steps: list[tuple[str, float]]) -> None:
    now, evidence, state, is_proven = 0.0, 0.0, Liveness(), False
    for step, seconds in steps:
        now += seconds
        match step:
            case "look":
                state = owes(state, now, LIMIT)
            case "work" if is_proven:
                state, evidence = worked(state, now), now
            case "away":
                state, is_proven = follow(state, Phase.AWAY, now), False
            case "ready":
                state = follow(state, Phase.READY, now)
                evidence, is_proven = (evidence if is_proven else now), True
        if not said(state, now)[0]:
            assert is_proven
            assert now - evidence > LIMIT
