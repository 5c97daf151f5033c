"""docs/api.md: penalties, logit_bias, min_tokens and min_p change what is drawn as vLLM's do, and for the row that asks alone."""

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence, ends_of
from llmendpoint_server.core.speculation import Tokens
from llmendpoint_server.engine import native
from llmendpoint_server.engine.sampling import sampler
from llmendpoint_server.engine.sampling.changes import Changes, Line
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER
from llmendpoint_server.engine.sampling.sampler import Sampler

VOCABULARY = 40
EOS = 3
PROMPT = (5, 5, 7, 9)


def sequence(answer: Tokens = (), prompt: Tokens = PROMPT, **asked: Any) -> Sequence:
    request = Request("r", prompt, SamplingParams(50, **asked))
    ends = ends_of(request, frozenset({EOS}))
    return Sequence(request, 7, [*prompt, *answer], [], ends=ends)


def some_logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def changed(logits: torch.Tensor, one: Sequence, guesses: Tokens = ()) -> list[float]:
    own = logits[None].clone()
    Changes().apply(own, [Line(one, guesses)])
    return own[0].tolist()


def plainly(logits: torch.Tensor, prompt: Tokens, answer: Tokens, asked: SamplingParams) -> list[float]:
    """The same, token by token, as vLLM's documentation says it."""
    counts, found = Counter(answer), []
    bias = dict(asked.logit_bias)
    for token, logit in enumerate(logits.tolist()):
        value = logit + bias.get(token, 0.0)
        if len(answer) < asked.min_tokens and (
            token in asked.stop_token_ids or (token == EOS and not asked.ignore_eos)
        ):
            value = -math.inf
        if token in prompt or token in counts:
            value = value / asked.repetition_penalty if value > 0 else value * asked.repetition_penalty
        value -= asked.frequency_penalty * counts[token]
        value -= asked.presence_penalty * (token in counts)
        found.append(value)
    if asked.min_p and not asked.greedy:
        shares = np.exp((np.array(found) - max(found)) / asked.temperature)
        found = [
            value if share >= asked.min_p else -math.inf for value, share in zip(found, shares, strict=True)
        ]
    return found


TOKENS = st.integers(0, VOCABULARY - 1)
ASKED = st.builds(
    SamplingParams,
    st.just(50),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.9]),
    min_p=st.sampled_from([0.0, 0.03, 0.4, 1.0]),
    frequency_penalty=st.sampled_from([0.0, -2.0, 0.3, 2.0]),
    presence_penalty=st.sampled_from([0.0, -0.7, 1.5]),
    repetition_penalty=st.sampled_from([1.0, 0.01, 0.5, 1.3, 10.0]),
    logit_bias=st.dictionaries(TOKENS, st.sampled_from([-100.0, -1.0, 0.5, 100.0]), max_size=5).map(
        lambda bias: tuple(bias.items())
    ),
    min_tokens=st.integers(0, 6),
    stop_token_ids=st.frozensets(TOKENS, max_size=3),
    ignore_eos=st.booleans(),
    seed=st.integers(0, 5),
)
TEXT = st.lists(TOKENS, max_size=8).map(tuple)
LINE = st.tuples(ASKED, TEXT.map(lambda text: (1, *text)), TEXT, TEXT, st.integers(0, 99))
"""what is asked, a prompt, an answer, guesses after it, and the seed of the logits"""
OneLine = tuple[SamplingParams, Tokens, Tokens, Tokens, int]


def sequence_of(line: OneLine) -> Sequence:
    asked, prompt, answer, _, _ = line
    request = Request("r", prompt, asked)
    return Sequence(request, asked.seed or 0, [*prompt, *answer], [], ends=ends_of(request, frozenset({EOS})))


@settings(deadline=None)
@given(LINE)
def test_each_stage_gives_what_the_formula_says(line: OneLine) -> None:
    asked, prompt, answer, guesses, seed = line
    want = plainly(some_logits(seed), prompt, answer + guesses, asked)
    found = changed(some_logits(seed), sequence_of(line), guesses)
    least = max(want) + (asked.temperature or 1) * math.log(asked.min_p or 1e-30)
    for one, other in zip(found, want, strict=True):
        at_the_edge = asked.min_p and abs(max(one, other) - least) < 1e-3
        assert one == pytest.approx(other, rel=1e-5, abs=1e-4) or at_the_edge


@pytest.mark.parametrize("by", ["torch", "kernel"])
@settings(deadline=None)
@given(lines=st.lists(LINE, min_size=1, max_size=8), shuffled=st.randoms(), at_once=st.integers(1, 5))
def test_a_rows_token_does_not_depend_on_its_batch_or_on_how_rows_are_cut(
    by: str, lines: list[OneLine], shuffled: random.Random, at_once: int
) -> None:
    draw = sampler_by(by)
    alone = [draw(some_logits(line[4])[None], [sequence_of(line)], [line[3]])[0] for line in lines]
    order = list(range(len(lines)))
    shuffled.shuffle(order)
    mixed = [lines[place] for place in order]
    logits = torch.stack([some_logits(line[4]) for line in mixed])
    before = logits.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sampler.CHANGED_AT_ONCE, "cpu", at_once * VOCABULARY)
        together = draw(logits, [sequence_of(line) for line in mixed], [line[3] for line in mixed])
    assert together == [alone[place] for place in order]
    assert torch.equal(logits, before), "the log probabilities are read from these logits"


def sampler_by(by: str) -> Sampler:
    if by == "torch":
        return Sampler()
    kernels = native.find(torch.device("cpu"), torch.float32)
    if kernels is None:
        pytest.skip("no CPU kernels here")
    return Sampler(kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@settings(deadline=None, max_examples=50)
@given(lines=st.lists(LINE, min_size=1, max_size=6))
def test_kernel_and_torch_draw_the_same_tokens(dtype: torch.dtype, lines: list[OneLine]) -> None:
    logits = torch.stack([some_logits(line[4]) for line in lines]).to(dtype)
    sequences, guesses = [sequence_of(line) for line in lines], [line[3] for line in lines]
    assert sampler_by("kernel")(logits, sequences, guesses) == Sampler()(logits, sequences, guesses)


@settings(deadline=None, max_examples=50)
@given(line=LINE, steps=TEXT)
def test_what_is_remembered_from_step_to_step_is_what_a_new_look_finds(line: OneLine, steps: Tokens) -> None:
    """The same sequence grows, with guesses in between that come to nothing."""
    one, changes = sequence_of(line), Changes()
    for token in steps:
        for guesses in (line[3], ()):
            own = some_logits(line[4])[None].clone()
            changes.apply(own, [Line(one, guesses)])
            anew = replace(one, tokens=list(one.tokens))
            assert own[0].tolist() == changed(some_logits(line[4]), anew, guesses)
        one.tokens.append(token)


def test_a_plain_row_of_bfloat16_is_drawn_from_its_own_logits_beside_one_that_changes_them() -> None:
    logits = torch.stack([some_logits(1), some_logits(2)]).bfloat16()
    plain = sequence(temperature=0.8)
    alone = Sampler()(logits[1:], [plain])
    assert Sampler()(logits, [sequence(frequency_penalty=0.1), plain])[1:] == alone


def test_a_bias_in_bfloat16_is_not_rounded_away() -> None:
    logits = torch.full((1, VOCABULARY), 30.0).bfloat16()
    asked = sequence(temperature=0, logit_bias=((11, 0.01),))
    assert Sampler()(logits, [asked]) == [11]


def test_logits_that_are_no_numbers_are_told_whatever_is_asked() -> None:
    logits = torch.full((1, VOCABULARY), math.nan)
    for asked in ({"min_p": 0.5}, {"frequency_penalty": 1.0}, {"min_tokens": 4}, {"logit_bias": ((1, 5.0),)}):
        assert Sampler()(logits, [sequence(**asked)]) == [NOT_A_NUMBER]


def test_no_token_ends_an_answer_before_its_min_tokens() -> None:
    logits = torch.zeros(VOCABULARY)
    logits[EOS] = 50
    asked = {"min_tokens": 2, "temperature": 0}
    assert Sampler()(logits[None], [sequence((8,), **asked)]) != [EOS]
    assert Sampler()(logits[None], [sequence((8, 8), **asked)]) == [EOS]
    assert Sampler()(logits[None], [sequence((8,), **asked)], [(8,)]) == [EOS], "a guess counts"
    assert Sampler()(logits[None], [sequence((8,), ignore_eos=True, **asked)]) == [EOS], "it ends nothing"
    assert Sampler()(
        logits[None], [sequence((8,), stop_token_ids=frozenset({EOS}), ignore_eos=True, **asked)]
    ) != [EOS]
