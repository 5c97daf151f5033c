"""docs/concepts/speculation.md: log probabilities are the model's own, with a draft or without, and change no token.

In float32, beside transformers' own forward.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.core import planning
from llmendpoint_server.core.batch import Sampled, Scheduled
from llmendpoint_server.core.request import Request, RequestOutput, SamplingParams, TokenLogprobs
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens
from llmendpoint_server.engine.loop import Engine
from llmendpoint_server.engine.sampling.logprobs import of_prompts, with_logprobs
from server.tests.engine.test_speculation import Bench, generate, page_bytes, prompts

NEW_TOKENS = 20


def row(logprobs: int | None, draft: Tokens = ()) -> Scheduled:
    asked = SamplingParams(5, temperature=0.5, logprobs=logprobs)
    return Scheduled(Sequence(Request("r", (0,), asked), 0, [0], []), 0, 1 + len(draft), draft)


def test_they_are_log_softmax_before_temperature_of_just_the_rows_that_ask() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.6, 0.1, 0.3]]))
    rows = [row(None), row(2), row(0)]
    silent, two, none = with_logprobs(logits + 3, rows, [Sampled((0,)), Sampled((1,)), Sampled((2,))])
    assert silent == Sampled((0,))
    (one,) = two.logprobs
    assert one.token == 1
    assert one.logprob == pytest.approx(math.log(0.2))
    assert [token for token, _ in one.top] == [2, 1]
    assert [score for _, score in one.top] == pytest.approx([math.log(0.7), math.log(0.2)])
    assert none.logprobs[0].logprob == pytest.approx(math.log(0.3))
    assert none.logprobs[0].top == ()


def test_each_token_of_a_draft_has_those_of_its_own_position() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]))
    rows = [row(1, draft=(1, 0)), row(1)]
    first, second = with_logprobs(logits, rows, [Sampled((1, 0)), Sampled((1,))])
    assert [one.logprob for one in first.logprobs] == pytest.approx([math.log(0.5), math.log(0.9)])
    assert [one.logprob for one in second.logprobs] == pytest.approx([math.log(0.7)])


def test_a_row_that_is_not_finite_raises_nothing_and_a_token_that_is_ruled_out_has_minus_infinity() -> None:
    logits = torch.tensor([[math.nan, 0.0], [0.0, -math.inf]])
    _, ruled_out = with_logprobs(logits, [row(1), row(2)], [Sampled((-1,)), Sampled((0,))])
    assert ruled_out.logprobs == (TokenLogprobs(0, 0.0, ((0, 0.0), (1, -math.inf))),)


def test_a_prompts_token_has_its_rank_among_all_tokens() -> None:
    asked = SamplingParams(5, prompt_logprobs=1)
    sequence = Sequence(Request("r", (0, 2, 1, 0), asked), 0, [0], [])
    scored = Scheduled(sequence, 0, 3)
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, -math.inf, 3.0], [3.0, 4.0, 3.0]])
    [told] = of_prompts(logits, [scored])
    assert [(one.token, one.rank) for one in told] == [(2, 1), (1, 3), (0, 3)], "as vLLM counts equal ones"


def outputs(engine: Engine, texts: list[Tokens], logprobs: int | None) -> dict[Tokens, list[RequestOutput]]:
    found: dict[Tokens, list[RequestOutput]] = {text: [] for text in texts}
    for number, text in enumerate(texts):
        asked = SamplingParams(NEW_TOKENS, temperature=0.8, seed=number, ignore_eos=True, logprobs=logprobs)
        assert engine.add(Request(str(number), text, asked)) == []
    while not engine.scheduler.idle:
        for output in engine.step():
            found[texts[int(output.id)]].append(output)
    return found


def tokens_of(found: dict[Tokens, list[RequestOutput]]) -> dict[Tokens, list[int]]:
    return {text: [token for one in some for token in one.tokens] for text, some in found.items()}


@pytest.mark.parametrize("speculating", [False, True])
def test_a_seeded_answer_is_the_same_and_its_log_probabilities_are_transformers_own(
    speculating: bool, model_folder: Callable[[str], Path]
) -> None:
    folder, texts = model_folder("llama"), prompts((5, 17))
    bench = Bench(folder, max_batched_tokens=16)
    expected = tokens_of(outputs(bench.plain(), texts, None))
    engine = bench.speculating(expected) if speculating else bench.plain()
    found = outputs(engine, texts, 3)
    assert tokens_of(found) == expected
    assert (engine.scheduler.counters.accepted_tokens > 0) is speculating
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for text, answer in expected.items():
        with torch.inference_mode():
            logits = model(torch.tensor([[*text, *answer]])).logits[0, len(text) - 1 : -1]
        want = logits.log_softmax(-1)
        got = [one for output in found[text] for one in output.logprobs]
        assert [one.token for one in got] == answer
        assert [one.logprob for one in got] == pytest.approx(
            want.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist(), abs=1e-4
        )
        assert [[score for _, score in one.top] for one in got] == [
            pytest.approx(line, abs=1e-4) for line in want.topk(3).values.tolist()
        ]


def told_of(engine: Engine, requests: list[Request]) -> dict[str, list[TokenLogprobs | None]]:
    """What is said of each request's prompt, by all of its answers. All are sent at once."""
    for request in requests:
        assert engine.add(request) == []
    told: dict[str, list[TokenLogprobs | None]] = {request.id: [] for request in requests}
    while not engine.scheduler.idle:
        for output in engine.step():
            assert not output.detail
            told[output.id] += output.prompt_logprobs
    assert engine.scheduler.blocks.held == 0
    return told


def check_told(folder: Path, prompt: Tokens, told: list[TokenLogprobs | None]) -> None:
    """It is what transformers' own forward says."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        want = model(torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
    first, *rest = told
    assert first is None
    found = [one for one in rest if one is not None]
    assert [one.token for one in found] == list(prompt[1:])
    own = want.gather(1, torch.tensor(prompt[1:])[:, None])[:, 0].tolist()
    assert [one.logprob for one in found] == pytest.approx(own, abs=1e-4)
    best = [pytest.approx(line, abs=1e-4) for line in want.topk(2).values.tolist()]
    assert [[score for _, score in one.top] for one in found] == best
    for one, line, score in zip(found, want, own, strict=True):  # rounding may change the order of neighbours
        assert (line > score + 1e-4).sum() < one.rank <= (line >= score - 1e-4).sum()
        assert one.rank in (1, 2) or one.token not in [token for token, _ in one.top]


@pytest.mark.parametrize("shape", ["llama", "gemma3_text"])
def test_those_of_a_prompt_are_transformers_own_in_chunks_from_the_cache_and_preempted(
    shape: str, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, texts = model_folder(shape), prompts((60, 1, 33, 47, 20))
    asked = SamplingParams(30, temperature=0, ignore_eos=True, prompt_logprobs=2, logprobs=0)
    requests = [Request(str(number), text, asked, n=1 + number % 2) for number, text in enumerate(texts)]
    bench = Bench(folder, max_batched_tokens=24)
    alone = bench.plain()
    expected = {request.id: told_of(alone, [request])[request.id] for request in requests}
    for request, text in zip(requests, texts, strict=True):
        check_told(folder, text, expected[request.id])
    again = {request.id: told_of(alone, [request])[request.id] for request in requests}
    monkeypatch.setattr(planning, "SCORED_AT_ONCE", 5)
    few = Bench(folder, max_batched_tokens=24, max_model_len=112, kv_cache_memory=8 * page_bytes(bench))
    crowded = few.plain()
    for found in (again, told_of(crowded, requests)):
        for request, text in zip(requests, texts, strict=True):
            check_told(folder, text, found[request.id])
    assert crowded.scheduler.counters.preemptions > 0


def test_a_prompt_that_is_told_changes_no_token_of_an_answer(model_folder: Callable[[str], Path]) -> None:
    bench, texts = Bench(model_folder("llama"), max_batched_tokens=16), prompts((5, 40))
    plain = [SamplingParams(NEW_TOKENS, temperature=0.8, seed=4, ignore_eos=True)] * 2
    told = [replace(one, prompt_logprobs=0) for one in plain]
    assert generate(bench.plain(), texts, told) == generate(bench.plain(), texts, plain)
