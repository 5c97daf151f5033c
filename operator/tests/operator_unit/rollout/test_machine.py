"""docs/concepts/rollouts.md: what each event does in each state: the whole table of moves."""

from __future__ import annotations

import pytest

from llmendpoint_operator.core.rollout.machine import MOVES, Event, State
from llmendpoint_operator.core.rollout.occurrences import OCCURRED

TABLE = """
                   Idle          Provisioning  Warming           Verifying         AwaitingPromotion  Switching     Observing     Draining      RollingBack   RolledBack
NewTarget          Provisioning  Provisioning  Provisioning      Provisioning      Provisioning       Provisioning  Provisioning  Provisioning  Provisioning  Provisioning
Reverted           .             Idle          Idle              Idle              Idle               RollingBack   RollingBack   Provisioning  .             Idle
Aborted            .             RollingBack   RollingBack       RollingBack       RollingBack        RollingBack   RollingBack   .             .             .
Overdue            .             RollingBack   RollingBack       RollingBack       .                  RollingBack   .             .             .             .
NoRoom             .             Provisioning  Provisioning      .                 .                  .             .             .             .             .
Scheduled          .             Warming       .                 .                 .                  .             .             .             .             .
Warm               .             .             Verifying         .                 .                  .             .             .             .             .
Cold               .             .             .                 Warming           Warming            .             .             .             .             .
Verified           .             .             .                 AwaitingPromotion .                  .             .             .             .             .
Unverified         .             .             .                 RollingBack       .                  .             .             .             .             .
Promoted           .             .             .                 .                 Switching          .             .             .             .             .
WaveReady          .             .             .                 .                 .                  Switching     .             .             .             .
Acknowledged       .             .             .                 .                 .                  Observing     .             .             .             .
Breached           .             .             .                 .                 .                  RollingBack   RollingBack   RollingBack           .             .
StepPassed         .             .             .                 .                 .                  .             Switching     .             .             .
StepChanged        .             .             .                 .                 .                  Switching     Switching     .             .             .
Confirmed          .             .             .                 .                 .                  .             Draining      .             .             .
Drained            .             .             .                 .                 .                  .             .             Idle          .             .
Restored           .             .             .                 .                 .                  .             .             .             RolledBack    .
"""
"""A dot: the event does not move this state, and is not looked for in it."""


def pairs() -> list[tuple[str, str, str]]:
    header, *rows = (line.split() for line in TABLE.strip().splitlines())
    return [(state, row[0], found) for row in rows for state, found in zip(header, row[1:], strict=True)]


@pytest.mark.parametrize(("state", "event", "expected"), pairs())
def test_a_move_is_as_in_the_table(state: str, event: str, expected: str) -> None:
    assert str(MOVES[State(state)].get(Event(event), ".")) == expected


def test_the_table_answers_every_pair() -> None:
    assert {(state, event) for state, event, _ in pairs()} == {(s, e) for s in State for e in Event}
    assert set(OCCURRED) == set(Event)


REACHED = (Event.SCHEDULED, Event.WARM, Event.VERIFIED, Event.WAVE_READY, Event.ACKNOWLEDGED)


@pytest.mark.parametrize("state", [state for state, row in MOVES.items() if Event.OVERDUE in row])
def test_what_green_has_reached_comes_before_its_deadline(state: State) -> None:
    """An operator that was away finds both."""
    order = list(MOVES[state])
    reached = [event for event in order if event in REACHED]
    assert reached
    assert all(order.index(event) < order.index(Event.OVERDUE) for event in reached)


def test_every_state_is_reached_and_left() -> None:
    reached = {state for row in MOVES.values() for state in row.values()}
    assert reached == set(State)
    assert all(MOVES[state] for state in State)
