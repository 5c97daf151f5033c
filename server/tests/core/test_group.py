"""docs/concepts/architecture.md: a request for several answers computes its prompt once, and each answer ends once."""

import pytest

from llmendpoint_server.core.batch import Sampled
from llmendpoint_server.core.randomness import member_seed, uniform
from llmendpoint_server.core.request import FinishReason, RequestOutput
from llmendpoint_server.core.scheduler import Scheduler
from server.tests.core.arithmetic_model import Machine, expected, make_scheduler, request

PROMPT = (1, 2, 3, 4, 5)


def step(scheduler: Scheduler, machine: Machine) -> list[RequestOutput]:
    batch = scheduler.schedule(0.0)
    return scheduler.update(batch, machine.run(batch), 0.5)


def rows(scheduler: Scheduler, machine: Machine) -> list[tuple[str, int, int, int]]:
    """Of a step that is scheduled and then computed: id, index, first token, how many."""
    batch = scheduler.schedule(0.0)
    found = [(row.sequence.id, row.sequence.index, row.start, row.count) for row in batch.rows]
    scheduler.update(batch, machine.run(batch), 0.5)
    return found


def finish(scheduler: Scheduler, machine: Machine) -> dict[tuple[str, int], tuple[int, ...]]:
    """What each answer got. None may end twice."""
    got: dict[tuple[str, int], tuple[int, ...]] = {}
    ended = set()
    for _ in range(1000):
        if scheduler.idle:
            break
        for output in step(scheduler, machine):
            answer = output.id, output.index
            assert answer not in ended
            got[answer] = got.get(answer, ()) + output.tokens
            if output.finish is not None:
                assert output.finish is FinishReason.LENGTH
                ended.add(answer)
    assert scheduler.idle
    assert ended == got.keys()
    assert scheduler.blocks.held == 0
    return got


def test_the_other_answers_begin_when_the_prompt_is_computed_and_compute_only_its_last_page() -> None:
    scheduler, machine = make_scheduler(pages=40, max_num_seqs=8, budget=20), Machine(2)
    scheduler.add(request("a", PROMPT, 3, n=3), seed=0)
    assert rows(scheduler, machine) == [("a", 0, 0, 5)]
    assert rows(scheduler, machine) == [("a", 0, 5, 1), ("a", 1, 4, 1), ("a", 2, 4, 1)]
    assert scheduler.blocks.held == 2 + 3


def test_while_a_long_prompt_is_computed_in_pieces_its_other_answers_hold_up_nobody() -> None:
    scheduler, machine = make_scheduler(pages=40, max_num_seqs=8, budget=8), Machine(2)
    scheduler.add(request("long", PROMPT * 3, 3, n=3), seed=0)
    scheduler.add(request("next", (1, 2), 3), seed=0)
    assert rows(scheduler, machine) == [("long", 0, 0, 8)]
    assert rows(scheduler, machine) == [("long", 0, 8, 7), ("next", 0, 0, 1)]


def test_all_answers_end_though_their_pages_together_are_more_than_there_are() -> None:
    scheduler = make_scheduler(pages=8, max_num_seqs=3)
    assert scheduler.add(request("a", PROMPT, 9, n=5), seed=0) == []
    want = expected(PROMPT, request("a", PROMPT, 9).sampling, 16)
    assert finish(scheduler, Machine(2)) == {("a", index): want for index in range(5)}
    assert scheduler.counters.preemptions > 0
    assert scheduler.counters.prompt_tokens == scheduler.counters.prefix_cache_queries == 5


def test_an_answer_of_one_token_lets_the_others_begin_too() -> None:
    scheduler = make_scheduler(pages=8, max_num_seqs=1)
    scheduler.add(request("a", PROMPT, 1, n=3), seed=0)
    assert len(finish(scheduler, Machine(2))) == 3


def test_each_answer_has_noise_of_its_own_and_the_first_one_that_of_a_single_answer() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("a", PROMPT, n=3), seed=7)
    members = scheduler._members.groups["a"].members
    assert [member.seed for member in members] == [7, member_seed(7, 1), member_seed(7, 2)]
    seeds = [member_seed(seed, index) for seed in (0, 1, -1) for index in range(128)]
    assert len({uniform(seed, 5) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_an_abort_ends_all_answers_whatever_they_have(steps: int) -> None:
    scheduler, machine = make_scheduler(pages=40, max_num_seqs=3), Machine(2)
    scheduler.add(request("a", PROMPT, n=4), seed=0)
    for _ in range(steps):
        step(scheduler, machine)
    ends = scheduler.abort("a")
    assert [(end.index, end.finish) for end in ends] == [(k, FinishReason.ABORTED) for k in range(4)]
    assert scheduler.idle
    assert scheduler.blocks.held == 0
    assert scheduler.waiting == scheduler.running == 0


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("index", [0, 2])
def test_an_abort_of_one_answer_ends_it_alone(steps: int, index: int) -> None:
    scheduler, machine = make_scheduler(pages=40, max_num_seqs=4), Machine(2)
    scheduler.add(request("a", PROMPT, 9, n=4), seed=0)
    for _ in range(steps):
        step(scheduler, machine)
    assert [(end.index, end.finish) for end in scheduler.abort("a", index)] == [(index, FinishReason.ABORTED)]
    assert scheduler.abort("a", index) == []
    done = finish(scheduler, machine)
    others = {("a", other) for other in range(4) if other != index}
    assert done.keys() == others
    assert scheduler.idle
    assert scheduler.blocks.held == 0


def test_an_answer_that_is_not_a_number_fails_all_of_its_request_and_no_other() -> None:
    scheduler, machine = make_scheduler(pages=40, max_num_seqs=5, budget=30), Machine(2)
    scheduler.add(request("bad", PROMPT, n=3), seed=0)
    scheduler.add(request("good", (1, 2), 4), seed=0)
    step(scheduler, machine)
    batch = scheduler.schedule(0.0)
    assert [(row.sequence.id, row.sequence.index) for row in batch.rows][-1] == ("bad", 2)
    sampled = machine.run(batch)
    sampled[-1] = Sampled((-1,))
    ends = [one for one in scheduler.update(batch, sampled, 0.5) if one.finish is not None]
    assert sorted((end.id, end.index) for end in ends) == [("bad", 0), ("bad", 1), ("bad", 2)]
    assert {end.finish for end in ends} == {FinishReason.FAILED}
    assert {end.detail for end in ends} == {"The model's output is not a number."}
    assert finish(scheduler, machine).keys() == {("good", 0)}


def test_a_request_whose_deadline_passes_ends_with_all_answers_and_counts_once() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=9)
    scheduler.add(request("runs", (1, 2)), seed=0)
    scheduler.schedule(0.0)
    scheduler.add(request("waits", (1, 2), n=3, deadline=5.0), seed=0)
    assert [(end.index, end.finish) for end in scheduler.expire(5.0)] == [
        (index, FinishReason.EXPIRED) for index in range(3)
    ]
    assert scheduler.counters.deadlines_passed == 1


def test_a_request_of_which_one_answer_has_begun_has_no_deadline_any_more() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=9)
    scheduler.add(request("a", PROMPT, 3, n=3, deadline=5.0), seed=0)
    scheduler.schedule(0.0)
    assert scheduler.waiting == 2
    assert scheduler.expire(5.0) == []


def test_the_bound_of_the_queue_counts_answers() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=3)
    scheduler.add(request("runs", (1, 2)), seed=0)
    scheduler.schedule(0.0)
    scheduler.add(request("waits", (1, 2)), seed=0)
    refusals = scheduler.add(request("many", (1, 2), n=3), seed=0)
    assert [(end.index, end.finish) for end in refusals] == [(k, FinishReason.REJECTED) for k in range(3)]
    assert refusals[0].detail == (
        "1 requests are waiting already, and this request is for 3 answers; the limit is 3 (--max-queued-requests)"
    )
    assert scheduler.add(request("few", (1, 2), n=2), seed=0) == []


def test_the_bound_in_tokens_counts_what_each_answer_computes() -> None:
    """5 tokens for the first, and 1 for each other: 4 lie in full pages."""
    for tokens, taken in ((6 + 7, False), (6 + 8, True)):
        scheduler = make_scheduler(pages=40, max_num_seqs=1, queue=9, queued_tokens=tokens)
        scheduler.add(request("runs", (1, 2)), seed=0)
        scheduler.schedule(0.0)
        scheduler.add(request("waits", (1,) * 7), seed=0)
        assert (scheduler.add(request("three", PROMPT, n=3), seed=0) == []) is taken


def test_more_answers_than_may_wait_are_taken_where_the_first_can_begin_at_once() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=2)
    assert scheduler.add(request("many", PROMPT, 2, n=9), seed=0) == []
    assert len(scheduler.add(request("late", (1,)), seed=0)) == 1
    assert len(finish(scheduler, Machine(2))) == 9


def test_an_answer_that_fails_while_another_of_its_request_needs_its_page_leaks_none() -> None:
    for steps in range(1, 9):
        scheduler, machine = make_scheduler(pages=8, max_num_seqs=3), Machine(2)
        scheduler.add(request("a", PROMPT, 9, n=3), seed=0)
        for _ in range(steps):
            step(scheduler, machine)
        scheduler._members.running[-1].table = None  # type: ignore[assignment]  # the fault to inject
        assert scheduler.schedule(0.0).rows == ()
        assert scheduler.idle
        assert scheduler.blocks.held == 0
