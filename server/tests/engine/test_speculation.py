"""docs/concepts/speculation.md: the tokens are those without it, whatever is guessed.

In float32: bf16's logits change with the batch's shape, for everybody.
"""

import itertools
import random
from collections.abc import Callable
from collections.abc import Sequence as Rows
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens, accept
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.protocol import Configure

SHAPES = ("llama", "qwen3", "gemma3_text", "gemma2", "gpt_oss", "mistral", "mixtral", "gpt2")
NEW_TOKENS = 24
PAGES = 200


class Knowing:
    """Guesses what it was told, with a wrong token now and then. Random models repeat nothing, so a lookup would find nothing."""

    def __init__(self, answers: dict[Tokens, list[int]]) -> None:
        self._lines = [prompt + tuple(answer) for prompt, answer in answers.items()]

    def propose(self, tokens: Rows[int], most: int) -> Tokens:
        known = tuple(tokens)
        line = next((line for line in self._lines if line[: len(known)] == known), known)
        places = range(len(known), min(len(known) + most, len(line)))
        return tuple(line[place] if place % 7 else 0 for place in places)


class Bench:
    """One model, with and without speculation."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        fixed = {"model_path": str(folder), "device": "cpu", "dtype": "float32", "max_model_len": 128}
        self.settings = Configure(**{**fixed, **settings})
        self.runner, self.info = load(self.settings)

    def plain(self) -> Engine:
        return Engine(self.runner, make_scheduler(self.settings, self.info))

    def speculating_by_lookup(self) -> Engine:
        on = Configure(**{**_fields(self.settings), "speculative_method": "ngram"})
        return Engine(self.runner, make_scheduler(on, self.info))

    def speculating(self, answers: dict[Tokens, list[int]]) -> Engine:
        on = Configure(**{**_fields(self.settings), "speculative_method": "ngram"})
        config = make_scheduler(on, self.info).config
        blocks = BlockManager(self.info.kv_pages, PAGE_SIZE)
        return Engine(self.runner, Scheduler(config, blocks, lambda: Knowing(answers)))


def _fields(settings: Configure) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Configure.__struct_fields__}


def make_engine(settings: Configure) -> Engine:
    runner, info = load(settings)
    return Engine(runner, make_scheduler(settings, info))


def prompts(lengths: Rows[int], seed: int = 1) -> list[Tokens]:
    random_ids = random.Random(seed)
    return [tuple(random_ids.randrange(2, 512) for _ in range(length)) for length in lengths]


def generate(engine: Engine, texts: Rows[Tokens], params: Rows[SamplingParams]) -> dict[Tokens, list[int]]:
    """The answer to each prompt, all sent at once."""
    answers: dict[str, list[int]] = {str(n): [] for n in range(len(texts))}
    for n, (text, sampling) in enumerate(zip(texts, params, strict=True)):
        assert engine.add(Request(str(n), text, sampling)) == []
    while not engine.scheduler.idle:
        for output in engine.step():
            assert not output.detail
            answers[output.id] += output.tokens
    assert engine.scheduler.blocks.held == 0
    return dict(zip(texts, answers.values(), strict=True))


def greedy(count: int, max_tokens: int = NEW_TOKENS) -> list[SamplingParams]:
    return [SamplingParams(max_tokens, temperature=0, ignore_eos=True)] * count


def page_bytes(bench: Bench) -> int:
    return int(bench.runner.backend.cache.bytes_per_page)


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_tokens_are_those_without_speculation_alone_in_a_batch_and_from_the_prefix_cache(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    texts = prompts((5, 1, 23, 40))
    bench = Bench(model_folder(shape), max_batched_tokens=40)
    expected = generate(bench.plain(), texts, greedy(4))
    engine = bench.speculating(expected)
    counters = engine.scheduler.counters
    alone: dict[Tokens, list[int]] = {}
    for text in texts:
        alone |= generate(engine, [text], greedy(1))
    assert alone == expected
    assert counters.accepted_tokens > counters.steps
    assert generate(engine, texts, greedy(4)) == expected
    assert 0 < counters.accepted_tokens < counters.draft_tokens
    assert counters.prefix_cache_hits > 0


@pytest.mark.parametrize("shape", ["llama", "gemma3_text", "mistral"])
def test_tokens_stay_when_prompts_are_cut_and_sequences_are_preempted(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    texts = prompts((15, 30, 14, 16, 13, 40, 12))
    bench = Bench(model_folder(shape), max_batched_tokens=19)
    expected = generate(bench.plain(), texts, greedy(7))
    few = Bench(
        model_folder(shape), max_batched_tokens=19, max_model_len=112, kv_cache_memory=8 * page_bytes(bench)
    )
    engine = few.speculating(expected)
    assert generate(engine, texts, greedy(7)) == expected
    assert engine.scheduler.counters.accepted_tokens > 0
    if shape != "mistral":  # which gives back what its window has left, and has pages enough
        assert engine.scheduler.counters.preemptions > 0


def test_tokens_stay_when_a_window_passes_pages_of_accepted_tokens(
    model_folder: Callable[[str], Path],
) -> None:
    texts = prompts((70, 9))
    bench = Bench(model_folder("mistral"))
    expected = generate(bench.plain(), texts, greedy(2, 50))
    engine = bench.speculating(expected)
    assert generate(engine, texts, greedy(2, 50)) == expected
    assert engine.scheduler.counters.accepted_tokens > 30


@pytest.mark.parametrize("own", [{}, {"top_p": 0.8, "top_k": 40}], ids=["plain", "cut"])
def test_a_seeded_request_draws_the_tokens_that_it_draws_without_speculation(
    own: dict[str, Any], model_folder: Callable[[str], Path]
) -> None:
    texts = prompts((5, 23, 40))
    params = [SamplingParams(NEW_TOKENS, temperature=0.9, seed=n, ignore_eos=True, **own) for n in range(3)]
    bench = Bench(model_folder("qwen3"))
    expected = generate(bench.plain(), texts, params)
    engine = bench.speculating(expected)
    assert generate(engine, texts, params) == expected
    assert 0 < engine.scheduler.counters.accepted_tokens < engine.scheduler.counters.draft_tokens


def save_copying_model(folder: Path, like: Path) -> list[int]:
    """Writes a model whose most probable token depends on the last one only. Returns that token for each token."""
    model = AutoModelForCausalLM.from_pretrained(like, dtype=torch.float32)
    torch.manual_seed(0)
    follows = torch.randperm(model.config.vocab_size)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.01)
            layer.mlp.down_proj.weight.mul_(0.01)
        model.lm_head.weight[follows] = model.model.embed_tokens.weight
    model.save_pretrained(folder)
    return [int(token) for token in follows]


@pytest.mark.parametrize(
    ("most", "given"), [(None, [1, 2, 4, 8, 8, 8, 8, 1]), (2, [1, 2, *[3] * 12, 1])], ids=["default", "two"]
)
def test_an_answer_that_copies_a_passage_of_the_prompt_takes_few_steps(
    most: int | None, given: list[int], model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """`given`: how many tokens each step gives."""
    follows = save_copying_model(tmp_path, model_folder("llama"))
    line = [5]
    while len(line) < 52:
        line.append(follows[line[-1]])
    copied = (*line[:50], *line[:2])
    edited = (*line[:25], 7, *line[26:50], *line[:2])
    engine = make_engine(
        Configure(str(tmp_path), dtype="float32", speculative_method="ngram", num_speculative_tokens=most)
    )
    counters = engine.scheduler.counters
    assert generate(engine, [copied], greedy(1, 40)) == {copied: line[2:42]}
    assert counters.steps == len(given)
    assert generate(engine, [edited], greedy(1, 40)) == {edited: line[2:42]}
    assert counters.steps > 2 * len(given)


class Poisoned:
    """Guesses a token whose keys and values are not finite."""

    def propose(self, tokens: Rows[int], most: int) -> Tokens:
        return (7,) * most


@pytest.mark.parametrize("cached", [True, False])
def test_a_guess_that_is_not_finite_costs_no_request_its_answer(
    cached: bool, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """The guess lies in the page of the sequence's own tokens, and must not stay there."""
    model = AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.float32)
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = torch.nan
    model.save_pretrained(tmp_path)
    texts = [tuple(token for token in text if token != 7) for text in prompts((5, 15, 34))]
    bench = Bench(tmp_path, prefix_caching=cached)
    expected = generate(bench.plain(), texts, greedy(3))
    assert not any(7 in answer for answer in expected.values())
    engine = Engine(
        bench.runner,
        Scheduler(bench.speculating({}).scheduler.config, BlockManager(PAGES, PAGE_SIZE), Poisoned),
    )
    assert generate(engine, texts, greedy(3)) == expected
    assert engine.scheduler.counters.drafts == 3


TABLE = torch.tensor(
    [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.05, 0.05, 0.6, 0.3]]
)
"""The law of the next token, by the last one."""


def answers(draft: Tokens, count: int = 6000) -> list[Tokens]:
    """For each seed three tokens after token 0; the first step has `draft`, the later ones have none."""
    request = Request("r", (0,), SamplingParams(8))
    sequences = [Sequence(request, seed, [0], []) for seed in range(count)]
    while short := [sequence for sequence in sequences if len(sequence.tokens) < 4]:
        rows = [(sequence, place) for sequence in short for place in range(len(draft) + 1)]
        logits = TABLE[[(sequence.tokens[-1], *draft)[place] for sequence, place in rows]].log()
        guesses = [draft[:place] for _, place in rows]
        sampled = iter(Sampler()(logits, [sequence for sequence, _ in rows], guesses))
        for sequence in short:
            sequence.tokens += accept(draft, tuple(itertools.islice(sampled, len(draft) + 1)))
        draft = ()
    return [tuple(sequence.tokens[1:4]) for sequence in sequences]


@pytest.mark.parametrize("draft", [(), (3,), (3, 2), (0, 0), (1, 3)], ids=str)
def test_what_is_drawn_follows_the_models_distribution_whatever_is_guessed(draft: Tokens) -> None:
    """6,000 seeds, so it gives the same result at each run. Chi-square with 63 degrees of freedom exceeds 103 once in a thousand."""
    drawn = answers(draft)
    chi_square = 0.0
    for a, b, c in itertools.product(range(len(TABLE)), repeat=3):
        want = float(TABLE[0, a] * TABLE[a, b] * TABLE[b, c]) * len(drawn)
        chi_square += (drawn.count((a, b, c)) - want) ** 2 / want
    assert chi_square < 103
    assert drawn == answers(())
