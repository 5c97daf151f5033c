"""docs/contribute/contracts.md: what cannot begin before its deadline is told so at once, and when to come again.

In virtual time, under twice the load that the machine can serve.
"""

import random

from llmendpoint_server.core.request import FinishReason
from server.tests.core.virtual_time import Simulation

PATIENCE = 5.0


def overloaded(patience: float | None) -> Simulation:
    """For 400 s, requests of 50 to 1,500 tokens arrive at random. The machine serves half of them."""
    simulation, draws = Simulation(0.010, 0.001, 0.001, seqs=8), random.Random(3)
    next_at = 0.0
    while simulation.now < 400:
        while next_at <= simulation.now:
            simulation.send(draws.randrange(50, 1500), draws.randrange(20, 200), patience)
            next_at += draws.expovariate(2.0)
        if simulation.scheduler.idle:
            simulation.now = next_at
        else:
            simulation.step()
    return simulation


def test_nearly_all_that_is_taken_begins_in_time_and_the_rest_is_told_at_once() -> None:
    simulation = overloaded(PATIENCE)
    waits = sorted(simulation.first[name] - simulation.arrived[name] for name in simulation.first)
    assert waits[-1] < 1.5 * PATIENCE
    assert waits[int(0.8 * len(waits))] < 1.1 * PATIENCE
    counters = simulation.scheduler.counters
    assert counters.deadlines_passed < 0.05 * counters.deadlines_unreachable
    assert {end.finish for end in simulation.refused.values()} == {FinishReason.EXPIRED}
    assert all(1 <= end.retry_after <= 60 for end in simulation.refused.values())


def test_deadlines_leave_no_place_empty() -> None:
    assert len(overloaded(PATIENCE).first) >= 0.9 * len(overloaded(None).first)
