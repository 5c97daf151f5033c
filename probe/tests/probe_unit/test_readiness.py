"""docs/contribute/contracts.md: a foreign engine is ready after a generation of its present run, while it answers heartbeats."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmendpoint_probe.core.readiness import (
    SILENCE_SECONDS,
    TRANSITIONS,
    Event,
    Phase,
    Readiness,
    answer,
    conclude,
    observe,
)


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_every_event_is_answered_in_every_phase(phase: Phase, event: Event) -> None:
    after = TRANSITIONS[phase][event]
    assert after in Phase
    if after is Phase.READY:
        assert phase is Phase.READY or event is Event.GENERATED
    if event in (Event.LOST, Event.UNHEALTHY, Event.CONNECTED):
        assert after in (Phase.AWAY, Phase.COLD)


def heard(*events: Event, now: float = 0.0) -> Readiness:
    found = Readiness()
    for event in events:
        found = observe(found, event, "", now)
    return found


def test_health_alone_is_no_readiness_and_a_generation_is() -> None:
    warming = heard(Event.CONNECTED, Event.HEALTHY, Event.HEALTHY)
    assert not answer(warming, 0).ready
    assert warming.attempt == 1
    assert answer(conclude(warming, 1, Event.GENERATED, "ok"), 0).ready


def test_a_failed_generation_is_tried_again_at_the_next_heartbeat() -> None:
    failed = conclude(heard(Event.CONNECTED, Event.HEALTHY), 1, Event.FAILED, "503")
    assert answer(failed, 0).detail == "503"
    assert observe(failed, Event.HEALTHY, "", 1).attempt == 2


def test_a_generation_that_began_before_a_restart_proves_nothing() -> None:
    again = heard(Event.CONNECTED, Event.HEALTHY, Event.LOST, Event.CONNECTED, Event.HEALTHY)
    assert again.attempt == 2
    assert not answer(conclude(again, 1, Event.GENERATED, ""), 0).ready
    assert answer(conclude(again, 2, Event.GENERATED, ""), 0).ready


def test_a_silent_engine_is_not_ready_and_is_again_when_it_answers_on_the_same_connection() -> None:
    ready = conclude(heard(Event.CONNECTED, Event.HEALTHY, now=10), 1, Event.GENERATED, "")
    assert answer(ready, 10 + SILENCE_SECONDS).ready
    late = answer(ready, 11 + SILENCE_SECONDS)
    assert (late.ready, late.status) == (False, "silent")
    assert answer(observe(ready, Event.HEALTHY, "", 30), 30).ready


class Probed(RuleBasedStateMachine):
    """An engine that starts anew at any moment, and generations that end in any order. `proven` is the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.readiness = Readiness()
        self.now = 0.0
        self.connected = False
        self.run = 0
        self.open: dict[int, int] = {}
        """attempts under way, by the run in which they were asked for"""
        self.proven: set[int] = set()

    def see(self, event: Event) -> None:
        before = self.readiness.attempt
        self.readiness = observe(self.readiness, event, "", self.now)
        if self.readiness.attempt != before:
            self.open[self.readiness.attempt] = self.run

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_engine_restarts_and_the_next_heartbeat_sees_it(self) -> None:
        self.run += 1
        self.connected = False
        self.see(Event.LOST)

    @rule(healthy=st.booleans())
    def a_heartbeat_is_answered(self, healthy: bool) -> None:
        if not self.connected:
            self.see(Event.CONNECTED)
            self.connected = True
        self.see(Event.HEALTHY if healthy else Event.UNHEALTHY)

    @rule(data=st.data(), succeeds=st.booleans())
    def a_generation_ends(self, data: st.DataObject, succeeds: bool) -> None:
        if not self.open:
            return
        attempt = data.draw(st.sampled_from(sorted(self.open)))
        if self.open.pop(attempt) == self.run and succeeds:
            self.proven.add(self.run)
        event = Event.GENERATED if succeeds else Event.FAILED
        self.readiness = conclude(self.readiness, attempt, event, "")

    @invariant()
    def ready_means_proven_in_this_run_and_heard_of_lately(self) -> None:
        if answer(self.readiness, self.now).ready:
            assert self.connected
            assert self.run in self.proven
            assert self.now - self.readiness.heard <= SILENCE_SECONDS


TestProbed = Probed.TestCase
TestProbed.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
