"""docs/api.md: all of a prompt's log probabilities are told once, in their order, whatever is cached, cut or preempted."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from llmendpoint_server.core import planning
from llmendpoint_server.core.request import RequestOutput
from server.tests.core.arithmetic_model import Machine, expected, make_scheduler, request, scores_of

TEXT = (1, 2, 3, 4, 5, 0, 1, 1, 2, 4, 0, 3)
ASKED = st.tuples(st.integers(1, len(TEXT)), st.sampled_from([None, 0, 3]), st.sampled_from([1, 1, 3]))
"""tokens of a prompt, its prompt_logprobs, and answers to it"""


@settings(deadline=None, max_examples=150)
@given(
    waves=st.lists(st.lists(ASKED, min_size=1, max_size=4), min_size=1, max_size=3),
    pages=st.integers(11, 20),
    budget=st.integers(4, 9),
    window=st.sampled_from([None, 5]),
    at_once=st.sampled_from([1, 3, 128]),
)
def test_all_of_a_prompt_is_told_once_to_those_who_ask(
    waves: list[list[tuple[int, int | None, int]]], pages: int, budget: int, window: int | None, at_once: int
) -> None:
    """The requests of a wave come together, and find in the cache what the wave before has left."""
    scheduler = make_scheduler(pages=pages, max_num_seqs=4, budget=budget, queue=20, window=window)
    machine, outputs = Machine(2, window), list[RequestOutput]()
    sent = {}
    for number, wave in enumerate(waves):
        for place, (length, asked, n) in enumerate(wave):
            new = request(f"{number}.{place}", TEXT[:length], 8, n=n, prompt_logprobs=asked)
            sent[new.id] = new
            assert scheduler.add(new, 0) == []
        while not scheduler.idle:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(planning, "SCORED_AT_ONCE", at_once)
                batch = scheduler.schedule(0.0)
            assert sum(len(row.scored) for row in batch.rows) <= at_once
            outputs += scheduler.update(batch, machine.run(batch), 0.5)
    event(
        f"preempted: {scheduler.counters.preemptions > 0}, found: {scheduler.counters.prefix_cache_hits > 0}"
    )
    for one in sent.values():
        wanted = one.sampling.prompt_logprobs is not None
        mine = [output for output in outputs if output.id == one.id]
        told = tuple(score for output in mine for score in output.prompt_logprobs)
        assert told == (scores_of(one.prompt) if wanted else ())
        assert all(not output.index for output in mine if output.prompt_logprobs)
        tokens = expected(one.prompt, one.sampling, scheduler.config.max_model_len)
        for index in range(one.n):
            got = tuple(token for output in mine if output.index == index for token in output.tokens)
            assert got == tokens
