"""docs/concepts/architecture.md: batching, shared pages and preemption change no token: greedy ones equal transformers' `generate`.

In float32: bf16's logits change with the batch's shape, for everybody.
"""

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.engine import native
from llmendpoint_server.engine.attention import gathered
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.protocol import Configure

SHAPES = ("llama", "qwen3", "gemma3_text", "gemma2", "gpt_oss", "mistral", "mixtral", "gpt2")
NEW_TOKENS = 24
PAGE_BYTES = {
    "qwen3": 4 * 2 * 2 * 16 * 16 * 4,
    "llama": 4 * 2 * 2 * 16 * 16 * 4,
    "mistral": 4 * 2 * 2 * 16 * 16 * 4,
    "gemma3_text": 7 * 2 * 2 * 16 * 16 * 4,
}
"""layers, keys and values, heads, head dimension, tokens, bytes"""
LENGTHS = (5, 1, 23, 40, 17, 9, 64, 33, 2, 16, 15, 48, 31, 70, 11, 27)


def prompts(lengths: Iterable[int] = LENGTHS, seed: int = 1) -> list[tuple[int, ...]]:
    random_ids = random.Random(seed)
    return [tuple(random_ids.randrange(2, 512) for _ in range(length)) for length in lengths]


def make_engine(folder: Path, **settings: object) -> Engine:
    configure = Configure(
        **{"model_path": str(folder), "device": "cpu", "dtype": "float32", "max_model_len": 128, **settings}  # type: ignore[arg-type]  # names are checked at run time
    )
    runner, info = load(configure)
    return Engine(runner, make_scheduler(configure, info))


def greedy(max_tokens: int = NEW_TOKENS) -> SamplingParams:
    return SamplingParams(max_tokens, temperature=0, ignore_eos=True)


def generate(
    engine: Engine, texts: list[tuple[int, ...]], sampling: SamplingParams | list[SamplingParams]
) -> list[list[int]]:
    """Tokens of each prompt, all sent at once."""
    each = sampling if isinstance(sampling, list) else [sampling] * len(texts)
    tokens: dict[str, list[int]] = {str(n): [] for n in range(len(texts))}
    ends = []
    for n, text in enumerate(texts):
        assert engine.add(Request(str(n), text, each[n])) == []
    while not engine.scheduler.idle:
        for output in engine.step():
            tokens[output.id] += output.tokens
            ends += [output.finish] if output.finish else []
    assert ends == [FinishReason.LENGTH] * len(texts)
    assert engine.scheduler.blocks.held == 0
    return list(tokens.values())


def reference(folder: Path, texts: list[tuple[int, ...]], count: int = NEW_TOKENS) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for text in texts:
        ids = torch.tensor([text])
        with torch.no_grad():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
            )
        found.append(out[0, len(text) :].tolist())
    return found


@pytest.fixture(params=["as installed", "without kernels"])
def operators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the CPU kernels where they are, and in torch's operators, which serve elsewhere."""
    if request.param == "without kernels":
        monkeypatch.setattr(native, "llmendpoint_native", None)
    return str(request.param)


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_tokens_equal_generate_alone_in_a_batch_and_from_the_prefix_cache(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    texts = prompts()
    expected = reference(model_folder(shape), texts)
    assert len({token for tokens in expected for token in tokens}) > 20, (
        "a model that repeats itself tests nothing"
    )
    engine = make_engine(model_folder(shape))
    for text, tokens in zip(texts[:4], expected[:4], strict=True):
        assert generate(engine, [text], greedy()) == [tokens]
    assert generate(engine, texts, greedy()) == expected
    before = engine.scheduler.counters.prefix_cache_hits
    assert generate(engine, texts, greedy()) == expected
    found = engine.scheduler.counters.prefix_cache_hits - before
    assert found == sum((length - 1) // PAGE_SIZE * PAGE_SIZE for length in LENGTHS)


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("shape", ["llama", "gemma3_text", "mistral"])
def test_tokens_stay_when_prompts_are_cut_and_sequences_are_preempted(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    texts = prompts()
    # A sequence is at most 94 tokens, 6 pages: 20 hold three of them, and 16 want to run.
    engine = make_engine(
        model_folder(shape),
        kv_cache_memory=PAGE_BYTES[shape] * 20,
        max_batched_tokens=19,
        prefix_caching=False,
    )
    assert engine.scheduler.blocks.pages == 20
    assert generate(engine, texts, greedy()) == reference(model_folder(shape), texts)
    if shape != "mistral":  # which gives back what its window has left, and has pages enough
        assert engine.scheduler.counters.preemptions > 0


def test_a_model_of_which_every_layer_has_a_window_holds_no_more_pages_however_long_it_generates(
    model_folder: Callable[[str], Path],
) -> None:
    """A window of 20 tokens lies in at most 3 pages; a step of 40 tokens begins 3 more."""
    engine = make_engine(model_folder("mistral"), max_model_len=512, max_batched_tokens=40)
    run, most = engine.runner.run, 0

    def watched(batch):  # type: ignore[no-untyped-def]  # a stand-in for one method
        nonlocal most
        most = max(most, engine.scheduler.blocks.held)
        return run(batch)

    engine.runner.run = watched  # type: ignore[method-assign]  # to look between steps
    (text,) = prompts((150,))
    for cached in (0, 144):
        most = 0
        before = engine.scheduler.counters.prefix_cache_hits
        assert generate(engine, [text], greedy(300)) == reference(model_folder("mistral"), [text], 300)
        assert most <= 6
        assert engine.scheduler.counters.prefix_cache_hits - before == cached


def test_a_model_of_which_one_layer_sees_everything_keeps_all_pages(
    model_folder: Callable[[str], Path],
) -> None:
    engine = make_engine(model_folder("gemma2"))
    assert engine.scheduler.config.sliding_window is None


def test_tokens_stay_without_the_prefix_cache(model_folder: Callable[[str], Path]) -> None:
    texts = prompts((33, 33, 40))
    engine = make_engine(model_folder("llama"), prefix_caching=False)
    expected = reference(model_folder("llama"), texts)
    assert generate(engine, texts, greedy()) == expected
    assert generate(engine, texts, greedy()) == expected
    assert engine.scheduler.counters.prefix_cache_hits == 0


@pytest.mark.usefixtures("operators")
def test_contexts_of_very_different_length_decode_together(model_folder: Callable[[str], Path]) -> None:
    texts = prompts((3, 400, 150, 7, 260))
    engine = make_engine(model_folder("gemma3_text"), max_model_len=512)
    assert generate(engine, texts, greedy()) == reference(model_folder("gemma3_text"), texts)


NEIGHBOURS = (
    {"top_p": 0.5},
    {"top_k": 3},
    {"temperature": 0},
    {"temperature": 2.0, "top_p": 0.9, "top_k": 7},
)


@pytest.mark.parametrize("own", [{}, {"top_p": 0.8, "top_k": 40}], ids=["plain", "cut"])
def test_a_seeded_request_draws_the_same_tokens_beside_anybody_in_chunks_and_after_preemption(
    own: dict[str, Any], model_folder: Callable[[str], Path]
) -> None:
    engine = make_engine(
        model_folder("qwen3"),
        kv_cache_memory=PAGE_BYTES["qwen3"] * 20,
        max_batched_tokens=19,
        prefix_caching=False,
    )
    texts = prompts()

    def seeded(seed: int) -> SamplingParams:
        return SamplingParams(NEW_TOKENS, temperature=0.9, seed=seed, ignore_eos=True, **own)

    others = [
        SamplingParams(NEW_TOKENS, seed=n, ignore_eos=True, **NEIGHBOURS[n % 4])
        for n in range(len(texts) - 5)
    ]
    alone = [generate(engine, [text], seeded(7))[0] for text in texts[:5]]
    assert generate(engine, texts, [*[seeded(7)] * 5, *others])[:5] == alone
    assert engine.scheduler.counters.preemptions > 0
    assert generate(engine, texts[:5], seeded(8)) != alone


def test_an_abort_frees_the_pages_at_once(model_folder: Callable[[str], Path]) -> None:
    engine = make_engine(model_folder("llama"))
    engine.add(Request("a", prompts((40,))[0], greedy()))
    engine.step()
    assert engine.scheduler.blocks.held == 3
    (end,) = engine.abort("a")
    assert end.finish is FinishReason.ABORTED
    assert engine.scheduler.blocks.held == 0
    assert engine.abort("a") == []


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("shape", ["llama", "gemma3_text", "gemma2", "gpt_oss"])
def test_what_is_no_number_in_a_page_that_was_given_back_touches_nobody(
    shape: str, model_folder: Callable[[str], Path]
) -> None:
    engine = make_engine(model_folder(shape), max_batched_tokens=19)
    engine.warm_up(longest=128)  # layers are allocated by their first use
    with torch.inference_mode():
        for layer in engine.runner.backend.cache.layers.values():  # type: ignore[attr-defined]  # a ModelRunner
            layer.keys.fill_(torch.nan)
            layer.values.fill_(torch.nan)
    texts = prompts()
    assert generate(engine, texts, greedy()) == reference(model_folder(shape), texts)


@pytest.mark.parametrize("shape", ["gemma2", "gpt_oss"])
def test_tokens_stay_when_scores_are_computed_in_parts(
    shape: str, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", None)  # the kernels never hold all scores
    monkeypatch.setattr(gathered, "MOST_SCORES", 300)
    texts = prompts()
    engine = make_engine(model_folder(shape), max_batched_tokens=19)
    assert generate(engine, texts, greedy()) == reference(model_folder(shape), texts)


POISON = 1  # `prompts` never holds it


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError])
def test_a_request_on_which_the_model_raises_in_its_last_norm_leaves_nothing_behind(
    error: type[Exception], model_folder: Callable[[str], Path]
) -> None:
    """By then every layer has written keys and values of the whole batch."""
    engine = make_engine(model_folder("llama"), max_batched_tokens=40)
    texts = prompts((20, 9, 35, 48))
    # The bad one shares its first pages with a good one, and is cut into chunks: some of its pages have names.
    bad = (*texts[3], *texts[2][:20], POISON)
    expected = reference(model_folder("llama"), [*texts, bad[:-1]])
    model = engine.runner.model  # type: ignore[attr-defined]  # a ModelRunner

    poisoned: list[bool] = []
    note = model.model.embed_tokens.register_forward_pre_hook(
        lambda _, ids: poisoned.append(bool((ids[0] == POISON).any()))
    )

    def fail(*_: object) -> None:
        if poisoned[-1]:
            raise error("poison")

    fault = model.model.norm.register_forward_pre_hook(fail)
    got: dict[str, list[int]] = {}
    details = []
    for n, text in enumerate(texts[:2]):
        engine.add(Request(str(n), text, greedy()))
    for step in range(200):
        if step == 3:
            engine.add(Request("bad", bad, greedy()))
            engine.add(Request("2", texts[2], greedy()))
            engine.add(Request("3", texts[3], greedy()))
        for output in engine.step():
            got.setdefault(output.id, []).extend(output.tokens)
            details += [output.detail] if output.detail else []
        if step > 3 and engine.scheduler.idle:
            break
    assert details == [f"The model failed on this request: {error.__name__}."]
    assert got.pop("bad") == []
    assert got == {str(n): tokens for n, tokens in enumerate(expected[:4])}
    assert engine.scheduler.blocks.held == 0
    fault.remove()
    note.remove()
    before = engine.scheduler.counters.prefix_cache_hits
    assert generate(engine, [*texts, bad[:-1]], greedy()) == expected
    assert engine.scheduler.counters.prefix_cache_hits > before


def test_a_device_on_which_every_request_fails_ends_the_engine(model_folder: Callable[[str], Path]) -> None:
    engine = make_engine(model_folder("llama"))

    def broken(batch):  # type: ignore[no-untyped-def]  # a stand-in for one method
        raise RuntimeError("the device is gone")

    engine.runner.run = broken  # type: ignore[method-assign]  # the fault to inject
    for name in ("a", "b"):
        engine.add(Request(name, (3, 4), greedy()))
    with pytest.raises(RuntimeError, match="the device is gone"):
        engine.step()
