"""docs/concepts/architecture.md: prompts that arrive do not hold up the answers that others read.

In virtual time: a step takes what a formula says.
"""

from random import Random
from statistics import median, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.pace import MIXED_IN_A_ROW, STRETCH, Pace
from server.tests.core.virtual_time import Simulation

MACHINES = {
    "a CPU": (0.010, 0.001, 0.001),
    "a CPU that many rows slow down": (0.002, 0.008, 0.002),
    "a GPU": (0.008, 0.00002, 0.00004),
}


@pytest.mark.parametrize("costs", MACHINES.values(), ids=list(MACHINES))
def test_while_long_prompts_arrive_p99_between_tokens_stays_within_three_times_p50(
    costs: tuple[float, float, float],
) -> None:
    simulation = Simulation(*costs)
    for _ in range(8):
        simulation.send(20, 1500)
    prompts = []
    for step in range(1500):
        if step >= 100 and step % 100 == 0:
            prompts.append(simulation.send(2000, 1))
        simulation.step()
    gaps = simulation.gaps
    assert quantiles(gaps, n=100)[98] <= 3 * median(gaps)
    assert prompts[-4] in simulation.first, "prompts starve"


def test_with_nothing_to_decode_a_prompt_has_the_whole_step() -> None:
    simulation = Simulation(0.010, 0.001, 0.001)
    simulation.send(20, 30)
    while not simulation.scheduler.idle:
        simulation.step()
    simulation.send(2000, 2)
    assert [simulation.step() for _ in range(4)] == [512, 512, 512, 464]


def test_a_batch_that_begins_with_many_prompts_fills_first() -> None:
    """Steps with few rows are inefficient."""
    simulation = Simulation(0.010, 0.001, 0.001, seqs=64)
    simulation.send(17, 4)
    while not simulation.scheduler.idle:
        simulation.step()
    for _ in range(64):
        simulation.send(64, 64)
    steps = 0
    while not simulation.scheduler.idle:
        simulation.step()
        steps += 1
    assert steps <= 100, "8 of prompts and 64 of decodes, if the prompts come first"


def test_when_every_step_has_prompts_the_pace_follows_the_batch_that_grows() -> None:
    """Steps of 16 rows take twelve times as long as of one. Where it was measured once with one row, prompts would get
    next to nothing for ever."""
    simulation = Simulation(0.001, 0.008, 0.001)
    simulation.send(20, 2000)
    for _ in range(20):
        simulation.step()
    alone = simulation.scheduler._pace.allowance(8, 1)
    for _ in range(14):
        simulation.send(20, 2000)
    simulation.send(4000, 1)
    while simulation.scheduler.running < 16:
        simulation.step()
    for _ in range(10):
        simulation.send(4000, 1)
    for _ in range(10 * MIXED_IN_A_ROW):
        simulation.step()
    assert simulation.scheduler._pace.allowance(8, 1) > 4 * alone


def test_where_a_step_with_prompts_costs_much_however_few_they_are_its_chunks_do_not_become_small() -> None:
    """As on CUDA: 2 ms for a graph of decodes, 5 ms more for a step without one, and 2 us for each prompt token. Chunks that
    kept the pace would be the smallest, and most of their time would be that of a step without a graph."""
    pace = Pace(8192)
    pace.observe(8192, 0, 0.020)
    pace.observe(0, 64, 0.002)
    chunks = []
    for _ in range(100):
        chunks.append(pace.allowance(64, 1))
        pace.observe(chunks[-1], 64, 0.002 + (0.005 + 2e-6 * chunks[-1] if chunks[-1] else 0))
    assert min(chunk for chunk in chunks[50:] if chunk) >= 2000


@pytest.mark.parametrize("length", [20_000, 60_000])
def test_long_prompts_whose_later_tokens_take_longer_keep_the_stretch(length: int) -> None:
    """As of 8 billion parameters on a GPU: 12 ms for a graph of decodes, 5 ms more for a step without one, 15 us for each prompt token, and of
    attention 0.5 ns for each token before it. Steps take up to 10 % longer than that."""
    pace, random, done = Pace(8192), Random(2), 0
    pace.observe(8192, 0, 0.128)
    for _ in range(5):
        pace.observe(0, 100, 0.012)
    times = []
    for _ in range(1500):
        tokens = min(pace.allowance(100, 1), length - done)
        times.append(0.012 + (0.005 + tokens * (15e-6 + 5e-10 * (done + tokens / 2)) if tokens else 0))
        pace.observe(tokens, 100, times[-1] * (1 + random.random() / 10))
        done = (done + tokens) % length
    assert quantiles(times[200:], n=100)[98] <= 1.2 * STRETCH * 0.012
    assert max(times[200:]) <= 2 * STRETCH * 0.012


@settings(deadline=None)
@given(
    decode=st.floats(1e-4, 1.0),
    per_token=st.floats(1e-6, 0.1),
    first=st.floats(1e-6, 0.1),
    budget=st.integers(32, 8192),
)
def test_whatever_was_believed_first_steps_come_to_keep_the_stretch(
    decode: float, per_token: float, first: float, budget: int
) -> None:
    pace = Pace(budget)
    pace.observe(budget, 0, budget * first)
    steps = []
    for _ in range(120):
        tokens = pace.allowance(8, 1)
        steps.append((tokens, decode + per_token * tokens))
        pace.observe(tokens, 8, steps[-1][1])
    least = budget // 32
    assert all(seconds <= 1.001 * STRETCH * decode for tokens, seconds in steps[-20:] if tokens > least)
    wanted = (STRETCH - 1) * decode / per_token
    assert max(tokens for tokens, _ in steps[-20:]) >= min(max(0.4 * wanted, least), budget)


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.floats(0, 1), st.floats(-1, 1e6, allow_nan=False)), max_size=60
    ),
    budget=st.integers(1, 9000),
)
def test_whatever_was_measured_a_prompt_is_computed_in_a_bounded_number_of_steps(
    steps: list[tuple[bool, float, float]], budget: int
) -> None:
    pace = Pace(budget)
    for decodes, share, seconds in steps:
        most = pace.allowance(8, 1) if decodes else budget
        pace.observe(int(share * most), 8 * decodes, seconds)
    done = 0
    for _ in range(MIXED_IN_A_ROW + 1):
        tokens = pace.allowance(8, 1)
        assert tokens == 0 or max(1, budget // 32) <= tokens <= budget
        pace.observe(tokens, 8, 1.0)
        done += tokens
    assert done >= MIXED_IN_A_ROW * max(1, budget // 32)
    assert pace.seconds(100, 8) >= pace.seconds(100, 0) >= 0
