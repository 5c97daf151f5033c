"""docs/concepts/architecture.md: the engine batches continuously on a paged cache, and no sequence reads what another one wrote."""

from typing import Any

import pytest

from llmendpoint_server import limits
from llmendpoint_server.core.batch import NOTHING, Sampled
from llmendpoint_server.core.queue import AGING_SECONDS
from llmendpoint_server.core.request import (
    FinishReason,
    Priority,
    Request,
    RequestOutput,
    SamplingParams,
    TokenLogprobs,
)
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.sequence import Status
from server.tests.core.arithmetic_model import (
    VOCAB,
    Machine,
    expected,
    finish_all,
    make_scheduler,
    request,
)


def test_pages_behind_a_sliding_window_are_held_no_longer_and_found_again_while_nobody_needs_them() -> None:
    scheduler, machine = make_scheduler(pages=30, page_size=2, max_num_seqs=1, window=4), Machine(2, 4)
    prompt = (1, 2, 3, 4, 5, 1, 2, 3)
    for name in ("first", "second"):
        scheduler.add(request(name, prompt, 50), seed=0)
        most = 0
        while not scheduler.idle:
            batch = scheduler.schedule(0.0)
            scheduler.update(batch, machine.run(batch), 0.5)
            most = max(most, scheduler.blocks.held)
        assert most <= 5  # a window of 4 tokens lies in 3 pages, and a step of 5 begins 2 more
    assert scheduler.counters.prefix_cache_hits == 6


def test_preempted_sequences_are_recomputed_to_the_same_tokens() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=3), Machine(2)
    prompts = {"a": (1, 2, 3), "b": (2, 2), "c": (0, 1)}
    for name, prompt in prompts.items():
        assert scheduler.add(request(name, prompt, 10), seed=0) == []
    ends = finish_all(scheduler, machine)
    assert scheduler.counters.preemptions > 0
    for name, prompt in prompts.items():
        assert ends[name] == (expected(prompt, request(name, prompt, 10).sampling, 16), FinishReason.LENGTH)


def test_a_long_prompt_is_cut_into_chunks_and_decodes_go_on_beside_it() -> None:
    scheduler, machine = make_scheduler(pages=20, budget=4), Machine(2)
    scheduler.add(request("short", (1,), 10), seed=0)
    batch = scheduler.schedule(0.0)
    scheduler.update(batch, machine.run(batch), 0.1)
    scheduler.add(request("long", (1, 2) * 5, 2), seed=0)
    counts = []
    for step in range(4):
        batch = scheduler.schedule(float(step))
        counts.append({row.sequence.id: row.count for row in batch.rows})
        scheduler.update(batch, machine.run(batch), step + 0.5)
    assert counts == [{"short": 1, "long": 3}] * 3 + [{"short": 1, "long": 1}]


def test_a_repeated_prompt_is_found_in_the_cache_and_its_last_token_is_computed() -> None:
    scheduler, machine = make_scheduler(), Machine(2)
    prompt = (1, 2, 3, 4)
    scheduler.add(request("first", prompt, 1), seed=0)
    finish_all(scheduler, machine)
    scheduler.add(request("second", prompt, 1), seed=0)
    batch = scheduler.schedule(0.0)
    assert [(row.start, row.count) for row in batch.rows] == [(2, 2)]
    (output,) = scheduler.update(batch, machine.run(batch), 0.5)
    assert output.cached_tokens == 2
    assert (scheduler.counters.prefix_cache_queries, scheduler.counters.prefix_cache_hits) == (8, 2)


def test_another_salt_finds_nothing_in_the_cache() -> None:
    scheduler, machine = make_scheduler(), Machine(2)
    scheduler.add(request("first", (1, 2, 3, 4), 1, salt="a"), seed=0)
    finish_all(scheduler, machine)
    scheduler.add(request("second", (1, 2, 3, 4), 1, salt="b"), seed=0)
    assert scheduler.schedule(0.0).rows[0].start == 0


def test_without_prefix_caching_nothing_is_found() -> None:
    scheduler, machine = make_scheduler(caching=False), Machine(2)
    scheduler.add(request("first", (1, 2, 3, 4), 1), seed=0)
    finish_all(scheduler, machine)
    scheduler.add(request("second", (1, 2, 3, 4), 1), seed=0)
    assert scheduler.schedule(0.0).rows[0].start == 0


def started(scheduler: Scheduler) -> list[str]:
    """Ids in the order in which the requests start, one in each step."""
    machine, order = Machine(2), []
    for step in range(100):
        if scheduler.idle:
            break
        batch = scheduler.schedule(1000.0 + step)
        order += [output.id for output in scheduler.update(batch, machine.run(batch), 1000.5 + step)]
    return order


def one_at_a_time(*requests: Request) -> Scheduler:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=10)
    for each in requests:
        assert scheduler.add(each, seed=0) == []
    return scheduler


def test_a_higher_priority_starts_first_and_equal_ones_start_in_the_order_of_arrival() -> None:
    names = ("low a", "normal a", "high a", "low b", "normal b", "high b")
    requests = [
        request(name, (1, 2), 1, arrival=float(at), priority=Priority(name.split()[0]))
        for at, name in enumerate(names)
    ]
    assert started(one_at_a_time(*requests)) == [
        "high a",
        "high b",
        "normal a",
        "normal b",
        "low a",
        "low b",
    ]


@pytest.mark.parametrize(
    ("seconds", "first"), [(2 * AGING_SECONDS - 1, "high"), (2 * AGING_SECONDS + 1, "low")]
)
def test_a_low_one_that_has_waited_long_enough_starts_before_a_high_one(seconds: float, first: str) -> None:
    low = request("low", (1, 2), 1, priority=Priority.LOW)
    high = request("high", (1, 2), 1, arrival=seconds, priority=Priority.HIGH)
    assert started(one_at_a_time(low, high))[0] == first


def test_of_the_running_ones_the_lowest_priority_that_came_last_is_preempted() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=4, budget=9, caching=False), Machine(2)
    for at, (name, priority) in enumerate(
        [("high", Priority.HIGH), ("old", Priority.LOW), ("new", Priority.LOW), ("normal", Priority.NORMAL)]
    ):
        scheduler.add(request(name, (1,), 10, arrival=float(at), priority=priority), seed=0)
    preempted: dict[str, None] = {}
    for step in range(12):
        running = list(scheduler._members.running)
        batch = scheduler.schedule(float(step))
        preempted |= {one.id: None for one in reversed(running) if one.status is Status.WAITING}
        scheduler.update(batch, machine.run(batch), step + 0.5)
    assert list(preempted) == ["new", "old", "normal"]


def test_the_waiting_prompts_have_a_bound_in_tokens_and_one_may_wait_whatever_its_length() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=1, queue=10, queued_tokens=6)
    assert scheduler.add(request("long", (1,) * 9), seed=0) == []
    scheduler.schedule(0.0)
    assert scheduler.add(request("longer", (1,) * 10), seed=0) == []
    assert scheduler.waiting_tokens == 10
    (refusal,) = scheduler.add(request("short", (1,)), seed=0)
    assert refusal.finish is FinishReason.REJECTED
    assert "10 tokens of prompts are waiting" in refusal.detail
    assert "the limit is 6 (--max-queued-tokens)" in refusal.detail
    assert scheduler.counters.refused_tokens == 1


def test_a_full_queue_names_the_limit_that_is_reached() -> None:
    (refusal,) = busy_scheduler(100).add(request("c", (1, 2)), seed=0)
    assert refusal.detail == "1 requests are waiting already; the limit is 1 (--max-queued-requests)"


def test_a_waiting_request_whose_deadline_passes_ends_and_frees_its_place_and_what_runs_goes_on() -> None:
    scheduler, machine = make_scheduler(pages=20, max_num_seqs=1, queue=1), Machine(2)
    scheduler.add(request("runs", (1, 2), 9, deadline=0.5), seed=0)
    scheduler.schedule(0.0)
    scheduler.add(request("waits", (1, 2), deadline=5.0), seed=0)
    assert scheduler.expire(4.9) == []
    (end,) = scheduler.expire(5.0)
    assert (end.id, end.finish) == ("waits", FinishReason.EXPIRED)
    assert end.retry_after >= 1
    assert scheduler.add(request("next", (1, 2), 1), seed=0) == []
    assert finish_all(scheduler, machine).keys() == {"runs", "next"}
    assert scheduler.counters.deadlines_passed == 1


def test_a_request_that_was_preempted_after_its_first_token_has_no_deadline_any_more() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=3), Machine(2)
    for name in "abc":
        scheduler.add(request(name, (1, 2), 10, deadline=3.0), seed=0)
    ends = finish_all(scheduler, machine)
    assert scheduler.counters.preemptions > 0
    assert {reason for _, reason in ends.values()} == {FinishReason.LENGTH}
    assert scheduler.expire(1e9) == []


def test_a_prompt_that_was_preempted_before_its_first_token_has_begun_and_has_no_deadline_any_more() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=2, budget=2, caching=False), Machine(2)
    scheduler.add(request("a", (1,), 14), seed=0)
    scheduler.add(request("long", (1, 2) * 6, 2, deadline=3.0), seed=0)
    while not scheduler.counters.preemptions:
        batch = scheduler.schedule(0.0)
        assert scheduler.counters.prompt_tokens <= 1, "it has no token yet"
        scheduler.update(batch, machine.run(batch), 0.0)
    assert scheduler.waiting == 1
    assert scheduler.expire(1e9) == []
    assert finish_all(scheduler, machine).keys() == {"a", "long"}


def deadline_at_work(
    deadline: float,
    prompt: int = 2,
    waiting: int = 0,
    n: int = 1,
    priority: Priority = Priority.NORMAL,
) -> list[RequestOutput]:
    """What a request with a deadline gets where one place is taken, ends come every 2 s, and a token takes 0.25 s."""
    scheduler, machine = make_scheduler(pages=600, max_num_seqs=1, queue=20), Machine(2)
    now = 0.0
    for number in range(3):
        scheduler.add(request(str(number), (1, 2), 8), 0, now)
        while not scheduler.idle:
            batch = scheduler.schedule(now)
            now += 0.25
            scheduler.update(batch, machine.run(batch), now)
    for number in range(1 + waiting):
        scheduler.add(request(f"before {number}", (1, 2), 1000, arrival=now), 0, now)
        scheduler.schedule(now)
    if n > 1:
        scheduler.add(request("several", (1, 2), 1000, arrival=now, n=n), 0, now)
    late = request("late", (3,) * prompt, arrival=now, deadline=now + deadline, priority=priority)
    return scheduler.add(late, 0, now)


def test_the_forecast_counts_each_answer_of_the_requests_that_start_before() -> None:
    for n in (2, 4):
        assert deadline_at_work(2.0 * (n + 1) + 1, n=n) == []
        assert deadline_at_work(2.0 * (n + 1) - 1, n=n) != []


def test_the_forecast_does_not_count_what_a_higher_priority_passes() -> None:
    assert deadline_at_work(3.0, waiting=2, n=3, priority=Priority.HIGH) == []
    assert deadline_at_work(3.0, waiting=2, n=3) != []


@pytest.mark.parametrize(("waiting", "wait"), [(0, 2.0), (1, 4.0), (3, 8.0)])
def test_a_request_whose_first_token_would_come_too_late_is_refused_at_once(
    waiting: int, wait: float
) -> None:
    assert deadline_at_work(wait + 1, waiting=waiting) == []
    (refusal,) = deadline_at_work(wait - 1, waiting=waiting)
    assert refusal.finish is FinishReason.EXPIRED
    assert 1 <= refusal.retry_after <= 2, "after that time the same wait is short enough"


def test_a_prompt_that_takes_longer_than_its_deadline_is_told_to_come_back_late() -> None:
    (refusal,) = deadline_at_work(3.0, prompt=500)
    assert refusal.detail.startswith("computing this prompt takes")
    assert refusal.retry_after == 60


def test_an_engine_that_has_measured_nothing_refuses_no_deadline() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for name in "abc":
        assert scheduler.add(request(name, (1, 2), deadline=0.001), seed=0) == []


def test_an_idle_engine_takes_a_request_however_long_its_first_step_made_it_expect() -> None:
    """Otherwise nothing would run, and the expectation would never be corrected."""
    scheduler, machine = make_scheduler(pages=600, max_num_seqs=1), Machine(2)
    scheduler.add(request("slow", (1, 2), 1), 0, 0.0)
    batch = scheduler.schedule(0.0)
    scheduler.update(batch, machine.run(batch), 100.0)
    assert scheduler.idle
    assert scheduler.add(request("next", (3,) * 500, arrival=100.0, deadline=103.0), 0, 100.0) == []
    assert scheduler.add(request("late", (3,) * 500, arrival=100.0, deadline=103.0), 0, 100.0) != []


def test_requests_start_in_the_order_of_arrival() -> None:
    scheduler = make_scheduler(pages=20, max_num_seqs=2, budget=9)
    for name in "abc":
        scheduler.add(request(name, (1, 2)), seed=0)
    assert [row.sequence.id for row in scheduler.schedule(0.0).rows] == ["a", "b"]


def busy_scheduler(max_tokens: int) -> Scheduler:
    """One place, which requests of 8 tokens took for 2 s each, and now another has; the queue is full."""
    scheduler, machine = make_scheduler(pages=600, max_num_seqs=1, queue=1), Machine(2)
    now = 0.0
    for number in range(3):
        scheduler.add(request(str(number), (1, 2), max_tokens), seed=0)
        for _ in range(8):
            batch = scheduler.schedule(now)
            now += 0.25
            scheduler.update(batch, machine.run(batch), now)
        scheduler.abort(str(number))
    for name in ("running", "queued"):
        assert scheduler.add(request(name, (1, 2), max_tokens), seed=0) == []
        scheduler.schedule(now)
    return scheduler


def test_a_full_queue_rejects_with_the_time_until_a_place_is_free_and_not_by_what_is_asked_for() -> None:
    waits = []
    for max_tokens in (100, 1000):
        (refusal,) = busy_scheduler(max_tokens).add(request("c", (1, 2), max_tokens), seed=0)
        assert refusal.finish is FinishReason.REJECTED
        waits.append(refusal.retry_after)
    assert waits == [2.0, 2.0]


def test_a_full_queue_rejects_with_the_time_to_the_limit_of_a_request_that_has_few_tokens_left() -> None:
    scheduler, machine = make_scheduler(pages=600, max_num_seqs=1, queue=0), Machine(2)
    scheduler.add(request("a", (1, 2), 10), seed=0)
    for step in range(7):
        batch = scheduler.schedule(step * 2.0)
        scheduler.update(batch, machine.run(batch), step * 2.0 + 2)
    (refusal,) = scheduler.add(request("b", (1, 2)), seed=0)
    assert refusal.retry_after == 3 * 2.0  # 14 s old, and 3 tokens from its end


def test_a_prompts_tokens_count_once_found_in_the_cache_or_computed_again() -> None:
    scheduler, machine = make_scheduler(pages=8, max_num_seqs=3), Machine(2)
    prompts = {"a": (1, 2, 3), "b": (2, 2), "c": (0, 1)}
    for name, prompt in prompts.items():
        scheduler.add(request(name, prompt, 10), seed=0)
    finish_all(scheduler, machine)
    assert scheduler.counters.preemptions > 0
    assert scheduler.counters.prompt_tokens == 7
    for name in ("again", "and again"):
        scheduler.add(request(name, (1, 2, 3), 1), seed=0)
        finish_all(scheduler, machine)
    assert scheduler.counters.prefix_cache_hits > 0
    assert scheduler.counters.prompt_tokens == 7 + 2 * 3


def test_a_draining_scheduler_rejects_what_is_new_and_finishes_what_is_in() -> None:
    scheduler, machine = make_scheduler(), Machine(2)
    scheduler.add(request("a", (1, 2), 3), seed=0)
    scheduler.draining = True
    (refusal,) = scheduler.add(request("b", (1,)), seed=0)
    assert (refusal.finish, refusal.detail) == (FinishReason.REJECTED, "draining")
    assert finish_all(scheduler, machine)["a"][1] is FinishReason.LENGTH


def test_a_prompt_that_cannot_fit_fails_alone_naming_both_numbers() -> None:
    scheduler = make_scheduler(pages=4, page_size=2)
    (refusal,) = scheduler.add(request("a", (1,) * 8), seed=0)
    assert refusal.finish is FinishReason.FAILED
    assert refusal.detail == "The prompt has 8 tokens; it must have 1 to 7."


def test_a_token_outside_the_vocabulary_fails_alone() -> None:
    (refusal,) = make_scheduler().add(request("a", (VOCAB,)), seed=0)
    assert refusal.finish is FinishReason.FAILED


def test_an_output_that_is_not_a_number_fails_alone() -> None:
    scheduler, machine = make_scheduler(), Machine(2)
    scheduler.add(request("good", (1, 2), 2), seed=0)
    scheduler.add(request("bad", (2, 1), 2), seed=0)
    batch = scheduler.schedule(0.0)
    outputs = scheduler.update(batch, [machine.run(batch)[0], Sampled((-1,))], 0.5)
    assert [(output.id, output.finish) for output in outputs] == [
        ("good", None),
        ("bad", FinishReason.FAILED),
    ]
    assert finish_all(scheduler, machine).keys() == {"good"}
    scheduler.add(request("again", (2, 1, 3), 2), seed=0)
    finish_all(scheduler, machine)
    assert scheduler.counters.prefix_cache_hits == 0, "pages with what is no number were found"


def test_what_a_step_gives_beyond_the_token_that_ends_a_request_is_dropped() -> None:
    scheduler, machine = make_scheduler(pages=20), Machine(2, at_once=3)
    scheduler.add(request("a", (1, 2), 4), seed=0)
    tokens, reason = finish_all(scheduler, machine)["a"]
    assert tokens == expected((1, 2), request("a", (1, 2), 4).sampling, 40)
    assert reason is FinishReason.LENGTH
    assert scheduler.counters.generated_tokens == 4


ONE = Sampled((1,))


@pytest.mark.parametrize(
    "sampled",
    [[], [ONE, ONE], [ONE, NOTHING, ONE], [NOTHING], [Sampled((1,), (TokenLogprobs(1, 0.0),)), NOTHING]],
)
def test_results_that_do_not_fit_the_rows_are_refused_before_anything_is_changed(
    sampled: list[Sampled],
) -> None:
    scheduler = make_scheduler(budget=5)
    scheduler.add(request("short", (1, 2), 2), seed=0)
    scheduler.add(request("long", (1, 2, 3, 4, 5, 0), 2), seed=0)
    batch = scheduler.schedule(0.0)
    assert [row.sample for row in batch.rows] == [True, False]
    with pytest.raises(ValueError, match="The model gave"):
        scheduler.update(batch, sampled, 0.5)
    assert scheduler.counters.steps == 0


def test_log_probabilities_end_with_the_token_that_ends_the_request() -> None:
    scheduler = make_scheduler()
    asked = SamplingParams(2, temperature=0, ignore_eos=True, logprobs=0)
    scheduler.add(Request("a", (1, 2), asked), seed=0)
    scores = tuple(TokenLogprobs(token, -float(token)) for token in (3, 4, 5))
    (output,) = scheduler.update(scheduler.schedule(0.0), [Sampled((3, 4, 5), scores)], 0.5)
    assert output.tokens == (3, 4)
    assert output.logprobs == scores[:2]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"logit_bias": ((VOCAB, 1.0),)}, "logit_bias has a token id outside 0 to 6"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias has a token id outside 0 to 6"),
        ({"prompt_logprobs": 20}, "prompt_logprobs asks for 42 values"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_model_is_refused_where_the_request_is_admitted(
    asked: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROMPT_LOGPROBS_VALUES_MAX", 41)
    (end,) = make_scheduler().add(Request("a", (1, 2), SamplingParams(2, **asked)), seed=0)
    assert end.finish is FinishReason.FAILED
    assert why in end.detail


def test_a_step_begins_ahead_while_a_waiting_request_finds_no_pages_and_not_once_pages_are_freed() -> None:
    """Else no step would in a full cache, for as long as requests wait."""
    scheduler, machine = make_scheduler(pages=12), Machine(2)
    for name, prompt, tokens in (
        ("short", (5,), 4),
        ("long", (4,), 20),
        ("large", (1, 2, 3, 4) * 4 + (1,), 2),
    ):
        scheduler.add(request(name, prompt, tokens), seed=0)
    batch = scheduler.schedule(0.0)
    scheduler.update(batch, machine.run(batch), 0.0)
    begun = []
    for _ in range(3):
        batch = scheduler.schedule(0.0)
        result, following = machine.run(batch), scheduler.ahead(batch)
        assert following is not None
        scheduler.update(batch, result, 0.0)
        begun.append((scheduler.running, scheduler.ahead(following) is not None))
    assert begun == [(2, True), (2, True), (1, False)]
    assert scheduler.waiting == 1
    ends = finish_all(scheduler, machine)
    assert [len(ends[name][0]) for name in ("long", "large")] == [16, 2]
