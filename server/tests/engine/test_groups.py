"""docs/concepts/architecture.md: an answer depends on its request's seed and on its index, not on what shares the batch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.loop import Engine
from server.tests.engine.test_speculation import Bench, page_bytes, prompts

N = 4
SAMPLING = SamplingParams(30, temperature=0.9, seed=11, ignore_eos=True)
CHANGING = replace(
    SAMPLING,
    min_p=0.02,
    frequency_penalty=0.4,
    presence_penalty=0.3,
    repetition_penalty=1.2,
    logit_bias=((7, 2.0), (9, -100.0)),
)
"""Its tokens depend on all that stand before them, so they show if some were counted twice, or not at all."""


def answers(engine: Engine, requests: list[Request]) -> dict[tuple[str, int], list[int]]:
    for one in requests:
        assert engine.add(one) == []
    found: dict[tuple[str, int], list[int]] = {}
    while not engine.scheduler.idle:
        for output in engine.step():
            assert not output.detail
            found.setdefault((output.id, output.index), []).extend(output.tokens)
    assert engine.scheduler.blocks.held == 0
    return found


@pytest.mark.parametrize("sampling", [SAMPLING, CHANGING], ids=["plain", "changing"])
def test_seeded_answers_are_the_same_alone_in_company_preempted_and_with_drafts(
    sampling: SamplingParams, model_folder: Callable[[str], Path]
) -> None:
    prompt, *others = prompts((21, 5, 17, 30))
    bench = Bench(model_folder("qwen3"))
    asked = Request("several", prompt, sampling, n=N)
    company = [Request(str(number), other, sampling, n=2) for number, other in enumerate(others)]
    alone = answers(bench.plain(), [asked])
    assert len({tuple(answer) for answer in alone.values()}) == N, "each answer is another one"
    single = answers(bench.plain(), [Request("several", prompt, sampling)])
    assert single["several", 0] == alone["several", 0]
    few = Bench(
        model_folder("qwen3"),
        max_batched_tokens=19,
        max_model_len=112,
        max_num_seqs=8,
        kv_cache_memory=8 * page_bytes(bench),
    )
    crowded = few.plain()
    drafting = bench.speculating({prompt: alone["several", 2]})
    for engine, requests in ((bench.plain(), company), (crowded, company), (drafting, [])):
        found = answers(engine, [*requests, asked])
        assert {answer: tokens for answer, tokens in found.items() if answer[0] == "several"} == alone
    assert crowded.scheduler.counters.preemptions > 0
    assert drafting.scheduler.counters.accepted_tokens > 0
