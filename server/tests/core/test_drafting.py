"""docs/concepts/speculation.md: drafts take what a step leaves, change no token, and leave nothing behind."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows

import pytest

from llmendpoint_server.core.batch import Batch, Sampled
from llmendpoint_server.core.request import FinishReason
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.speculation import Proposer
from server.tests.core.arithmetic_model import (
    EOS,
    Guesser,
    Machine,
    expected,
    finish_all,
    make_scheduler,
    request,
)


def drafting_scheduler(
    speculative: int = 4, pages: int = 40, budget: int = 30, max_num_seqs: int = 9, wrong: int = 0
) -> Scheduler:
    guesser: Callable[[], Proposer] = lambda: Guesser(wrong)  # noqa: E731  a name for what the scheduler calls
    return make_scheduler(
        pages=pages,
        budget=budget,
        max_num_seqs=max_num_seqs,
        queue=9,
        speculative=speculative,
        proposer=guesser,
    )


def step(scheduler: Scheduler, machine: Machine) -> dict[str, int]:
    """One step; the length of each row's draft. It takes no time, so the pace knows nothing, and bounds no prompt."""
    batch = scheduler.schedule(0.0)
    scheduler.update(batch, machine.run(batch), 0.0)
    return {row.sequence.id: len(row.draft) for row in batch.rows}


def test_drafts_that_hold_become_longer_up_to_the_limit_and_save_steps() -> None:
    scheduler, machine = drafting_scheduler(), Machine(2)
    scheduler.add(request("a", (1, 2), 30), seed=0)
    assert [step(scheduler, machine)["a"] for _ in range(5)] == [0, 1, 3, 4, 4]
    assert finish_all(scheduler, machine).keys() == {"a"}
    counters = scheduler.counters
    assert counters.generated_tokens == 30
    assert counters.draft_tokens == counters.accepted_tokens == 30 - counters.steps
    assert counters.drafts == counters.steps - 1


def test_a_sequence_whose_drafts_fail_costs_one_row_more_a_step() -> None:
    scheduler, machine = drafting_scheduler(wrong=1), Machine(2)
    scheduler.add(request("a", (1, 2), 10), seed=0)
    assert [step(scheduler, machine)["a"] for _ in range(9)] == [0, *[1] * 8]
    assert scheduler.counters.accepted_tokens == 0
    assert scheduler.counters.generated_tokens == 9


def test_a_rejected_draft_gives_its_pages_back() -> None:
    scheduler, machine = drafting_scheduler(wrong=5), Machine(2)
    scheduler.add(request("a", (1, 2, 3), 20), seed=0)
    while not scheduler.idle:
        batch = scheduler.schedule(0.0)
        during = scheduler.blocks.held
        scheduler.update(batch, machine.run(batch), 0.5)
        assert scheduler.blocks.held <= during
        for sequence in scheduler._members.running:
            assert scheduler.blocks.held == -(-sequence.computed // 2)
    assert 0 < scheduler.counters.accepted_tokens < scheduler.counters.draft_tokens


def test_a_step_of_many_sequences_or_with_a_prompt_has_no_drafts() -> None:
    scheduler, machine = drafting_scheduler(pages=80), Machine(2)
    for name in "abcdefgh":
        scheduler.add(request(name, (1,), 9), seed=0)
    assert not any(step(scheduler, machine).values())
    assert step(scheduler, machine) == dict.fromkeys("abcdefgh", 0)
    for name in "cdefgh":
        scheduler.abort(name)
    scheduler.add(request("long", (1, 2) * 4, 9), seed=0)
    assert step(scheduler, machine) == {"a": 0, "b": 0, "long": 0}
    assert all(step(scheduler, machine).values())


def test_sequences_share_what_a_step_leaves() -> None:
    scheduler, machine = drafting_scheduler(speculative=7), Machine(2)
    for name in "abc":
        scheduler.add(request(name, (1,), 20), seed=0)
    assert [step(scheduler, machine) for _ in range(3)][1:] == [
        {"a": 1, "b": 1, "c": 1},
        {"a": 1, "b": 2, "c": 2},
    ]


@pytest.mark.parametrize(("allowed", "computed"), [(1, {"a": 1, "long": 0}), (0, {"a": 0})])
def test_the_pace_bounds_prompts_and_a_step_that_is_to_decode_alone_has_no_drafts(
    monkeypatch: pytest.MonkeyPatch, allowed: int, computed: dict[str, int]
) -> None:
    scheduler, machine = drafting_scheduler(), Machine(2)
    scheduler.add(request("a", (1,), 20), seed=0)
    step(scheduler, machine)
    monkeypatch.setattr(scheduler._pace, "allowance", lambda decoding, prompts: allowed)
    scheduler.add(request("long", (1, 2) * 9, 9), seed=0)
    assert step(scheduler, machine) == computed


def test_drafts_count_in_the_budget_of_a_step() -> None:
    scheduler, machine = drafting_scheduler(budget=3, max_num_seqs=3), Machine(2)
    for name in "ab":
        scheduler.add(request(name, (1,), 20), seed=0)
    step(scheduler, machine)
    assert step(scheduler, machine) == {"a": 0, "b": 1}


def test_drafts_preempt_nobody() -> None:
    plain, drafting = (
        make_scheduler(pages=6, budget=9, speculative=most, proposer=lambda: Guesser(0)) for most in (0, 6)
    )
    for scheduler in (plain, drafting):
        scheduler.add(request("a", (1, 2, 3), 3), seed=0)
        scheduler.add(request("b", (1, 2), 4), seed=0)
        finish_all(scheduler, Machine(2))
    assert drafting.counters.accepted_tokens > 0
    assert drafting.counters.preemptions == plain.counters.preemptions == 0


def test_a_draft_is_no_longer_than_the_free_pages_hold() -> None:
    scheduler, machine = drafting_scheduler(pages=5), Machine(2)
    for name in "ab":
        scheduler.add(request(name, (1, 2, 3), 4), seed=0)
    step(scheduler, machine)
    assert step(scheduler, machine) == {"a": 1, "b": 0}
    assert not scheduler.take_faults()


def test_no_draft_goes_beyond_the_length_of_the_model() -> None:
    scheduler, machine = drafting_scheduler(pages=6), Machine(2)
    scheduler.add(request("a", (1, 2, 3), 100), seed=0)
    while not scheduler.idle:
        batch = scheduler.schedule(0.0)
        assert all(row.start + row.count < 12 for row in batch.rows)
        scheduler.update(batch, machine.run(batch), 0.5)
    assert scheduler.counters.generated_tokens == 9


def test_tokens_after_the_end_of_a_request_are_neither_drafted_nor_given() -> None:
    scheduler, machine = drafting_scheduler(speculative=7), Machine(2)
    prompts = {str(n): (n % 5, n // 5) for n in range(1, 9)}
    ends = set()
    for name, prompt in prompts.items():
        sent = request(name, prompt, 12, ignore_eos=False)
        scheduler.add(sent, seed=0)
        tokens, reason = finish_all(scheduler, machine)[name]
        assert tokens == expected(prompt, sent.sampling, 80)
        assert (reason is FinishReason.STOP) is (tokens[-1] == EOS)
        ends.add(reason)
    assert ends == {FinishReason.STOP, FinishReason.LENGTH}
    assert scheduler.blocks.held == 0


def test_accepted_tokens_are_found_in_the_prefix_cache_and_rejected_ones_are_not() -> None:
    found = []
    for speculative in (0, 5):
        scheduler, machine = drafting_scheduler(speculative, wrong=4), Machine(2)
        scheduler.add(request("a", (1, 2, 3), 16), seed=0)
        answer, _ = finish_all(scheduler, machine)["a"]
        scheduler.add(request("b", (1, 2, 3, *answer, 1), 1), seed=0)
        finish_all(scheduler, machine)
        found.append(scheduler.counters.prefix_cache_hits)
    assert found == [18, 18]


def test_without_speculation_nobody_is_asked_to_guess() -> None:
    def no_proposer() -> Proposer:
        raise AssertionError("speculation is off")

    scheduler = make_scheduler(pages=20, proposer=no_proposer)
    scheduler.add(request("a", (1, 2), 9), seed=0)
    finish_all(scheduler, Machine(2))
    assert scheduler.counters.draft_tokens == 0


def test_a_proposer_that_raises_ends_its_own_request_only() -> None:
    class Broken:
        def propose(self, tokens: Rows[int], most: int) -> tuple[int, ...]:
            raise IndexError("broken")

    made: Iterator[Proposer] = iter([Broken(), Guesser(0)])
    scheduler = make_scheduler(pages=20, budget=9, speculative=3, proposer=lambda: next(made))
    for name in ("bad", "good"):
        scheduler.add(request(name, (1, 2), 9), seed=0)
    ends = finish_all(scheduler, Machine(2))
    assert ends.keys() == {"good"}
    assert [fault.end.finish for fault in scheduler.take_faults()] == [FinishReason.FAILED]
    assert scheduler.blocks.held == 0


def with_poison(machine: Machine, batch: Batch, alone: bool) -> list[Sampled]:
    """Of rows with a draft nothing is finite; if not `alone`, what they give first is."""
    return [
        Sampled((-1,) if alone else (new.tokens[0], -1)) if row.draft else new
        for row, new in zip(batch.rows, machine.run(batch), strict=True)
    ]


@pytest.mark.parametrize("alone", [True, False])
def test_a_request_whose_draft_is_not_finite_is_computed_anew_without_and_gets_no_more(alone: bool) -> None:
    scheduler, machine = drafting_scheduler(), Machine(2)
    for name, prompt in {"a": (1, 2, 3), "b": (2, 1)}.items():
        scheduler.add(request(name, prompt, 9), seed=0)
    got: dict[str, tuple[int, ...]] = {"a": (), "b": ()}
    while not scheduler.idle:
        batch = scheduler.schedule(0.0)
        for output in scheduler.update(batch, with_poison(machine, batch, alone), 0.0):
            assert output.finish in (None, FinishReason.LENGTH)
            got[output.id] += output.tokens
    assert got["a"] == expected((1, 2, 3), request("a", (1, 2, 3), 9).sampling, 80)
    assert got["b"] == expected((2, 1), request("b", (2, 1), 9).sampling, 80)
    assert scheduler.counters.drafts == 2
    assert scheduler.counters.accepted_tokens == scheduler.counters.preemptions == 0
    assert scheduler.blocks.held == 0


def test_a_request_that_is_not_finite_without_a_draft_either_fails() -> None:
    scheduler, machine = drafting_scheduler(), Machine(2)
    scheduler.add(request("a", (1, 2, 3), 9), seed=0)
    step(scheduler, machine)
    outputs = []
    for _ in range(2):
        batch = scheduler.schedule(0.0)
        outputs += scheduler.update(batch, [Sampled((-1,))], 0.0)
    assert [output.finish for output in outputs] == [FinishReason.FAILED]
    assert scheduler.idle


def test_steps_with_drafts_do_not_change_the_pace_of_prompts() -> None:
    """A token takes 1 s, and a step with drafts so much longer than one without. Only the latter says what a decode takes."""
    scheduler, machine = drafting_scheduler(speculative=7, wrong=5), Machine(2)
    now, drafted = 0.0, 0
    for name, max_tokens in (("without", 2), ("with", 40)):
        scheduler.add(request(name, (1,) * 20, max_tokens), seed=0)
        while not scheduler.idle:
            batch = scheduler.schedule(now)
            sampled, drafted = machine.run(batch), drafted + batch.drafted
            now += batch.tokens
            scheduler.update(batch, sampled, now)
    assert drafted > 5
    assert scheduler._pace.allowance(1, 1) == 4  # which lets one step take as long as five
