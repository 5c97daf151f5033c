"""docs/reference/metrics.md: the engine says when it began a request and when it had its first token, once for each answer."""

from __future__ import annotations

from llmendpoint_server.core.counters import STEP_TOKENS, Counters
from llmendpoint_server.core.request import RequestOutput
from llmendpoint_server.core.scheduler import Scheduler
from server.tests.core.arithmetic_model import Machine, make_scheduler, request


def run(scheduler: Scheduler, machine: Machine, now: float) -> list[RequestOutput]:
    """Steps of a second, until nothing is left."""
    outputs = []
    while not scheduler.idle:
        batch = scheduler.schedule(now)
        now += 1.0
        outputs += scheduler.update(batch, machine.run(batch), now)
    return outputs


def test_the_first_output_of_a_request_says_when_it_began_and_no_other_does() -> None:
    scheduler, machine = make_scheduler(pages=20, max_num_seqs=1, budget=4), Machine(2)
    scheduler.add(request("first", (1, 2) * 5, 3), seed=0, now=10.0)
    scheduler.add(request("second", (1,), 2), seed=0, now=10.0)
    outputs = run(scheduler, machine, 10.0)
    assert [(one.id, one.began, one.first_token) for one in outputs] == [
        ("first", 10.0, 13.0),  # its prompt takes three steps
        ("first", 0.0, 0.0),
        ("first", 0.0, 0.0),
        ("second", 15.0, 16.0),
        ("second", 0.0, 0.0),
    ]


def test_a_request_that_was_preempted_began_when_it_first_ran() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=3), Machine(2)
    for name, prompt in {"a": (1, 2, 3), "b": (2, 2), "c": (0, 1)}.items():
        scheduler.add(request(name, prompt, 10), seed=0)
    begun = [(one.id, one.began) for one in run(scheduler, machine, 5.0) if one.began]
    assert scheduler.counters.preemptions > 0
    assert sorted(begun) == [("a", 5.0), ("b", 5.0), ("c", 6.0)]  # c gets its first pages a step later


def test_steps_are_counted_by_the_tokens_that_they_computed() -> None:
    scheduler, machine = make_scheduler(pages=20, budget=8), Machine(2)
    scheduler.add(request("one", (1, 2) * 5, 3), seed=0)
    run(scheduler, machine, 0.0)
    counters = scheduler.counters
    assert (counters.steps, counters.computed_tokens) == (
        4,
        12,
    )  # 8 and 2 of the prompt, then a token at a time
    assert counters.step_tokens[:3] == (2, 2, 0)


def test_a_step_above_all_bounds_is_counted_last() -> None:
    counters = Counters()
    counters.count_step(STEP_TOKENS[-1])
    counters.count_step(STEP_TOKENS[-1] + 1)
    assert counters.step_tokens[-2:] == (1, 1)
