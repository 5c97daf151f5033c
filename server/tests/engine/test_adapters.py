"""docs/concepts/adapters.md: rows of one batch have adapters of their own, and compute what peft computes.

In float32: bf16's logits change with the batch's shape, for everybody.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.engine import native, preparing, surgery
from llmendpoint_server.engine.adapters import changes, layer
from llmendpoint_server.engine.adapters.changes import Changes, load_at_start
from llmendpoint_server.engine.adapters.stack import Piece
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.fused import FusedLayers
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.engine.step import Step
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import AdapterChanged, Configure, LoadAdapter, UnloadAdapter
from server.tests.engine import lora

BOUND = 1e-4
"""Of a logit; those of the models here spread by about 0.6."""
LENGTHS = (5, 1, 23, 40, 17, 9, 3, 31, 12)
NAMES = [f"a{n}" for n in range(8)] + [""]
Tokens = tuple[int, ...]


def prompts(lengths: tuple[int, ...] = LENGTHS) -> list[Tokens]:
    random_ids = random.Random(1)
    return [tuple(random_ids.randrange(2, 512) for _ in range(length)) for length in lengths]


def greedy(tokens: int = 12) -> SamplingParams:
    return SamplingParams(tokens, temperature=0, ignore_eos=True)


@pytest.fixture(scope="session")
def adapters(
    model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Path]]:
    """Some of eight adapters of a model of this shape, made once."""
    made: dict[tuple[str, int], Path] = {}

    def one(shape: str, number: int) -> Path:
        if (shape, number) not in made:
            folder = tmp_path_factory.mktemp("adapter")
            made[shape, number] = lora.save(model_folder(shape), folder, number, **lora.KINDS[number])
        return made[shape, number]

    return lambda shape, count=8: [one(shape, number) for number in range(count)]


def make_engine(folder: Path, at_start: list[Path], **more: Any) -> Engine:
    options = {
        "device": "cpu", "dtype": "float32", "max_model_len": 128, "max_loras": 8, "max_num_seqs": 16,
        "max_batched_tokens": 512, **more,
    }  # fmt: skip
    configure = Configure(str(folder), **options)
    runner, info = load(configure)
    engine = Engine(runner, make_scheduler(configure, info))
    assert runner.stack is not None
    named = [(f"a{n}", str(path)) for n, path in enumerate(at_start)]
    load_at_start(runner.stack, engine.scheduler.adapters, named)
    return engine


def ask(engine: Engine, number: int, prompt: Tokens, sampling: SamplingParams, adapter: str) -> None:
    assert engine.add(Request(str(number), prompt, sampling, adapter=adapter)) == []


def finish(engine: Engine) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    while not engine.scheduler.idle:
        for output in engine.step():
            assert output.finish in (None, FinishReason.LENGTH), output.detail
            found.setdefault(int(output.id), []).extend(output.tokens)
    assert engine.scheduler.blocks.held == 0
    return found


def together(
    engine: Engine, texts: list[Tokens], names: list[str], sampling: SamplingParams | None = None
) -> list[list[int]]:
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        ask(engine, number, text, sampling or greedy(), name)
    found = finish(engine)
    return [found[number] for number in range(len(texts))]


def alone(
    engine: Engine, texts: list[Tokens], names: list[str], sampling: SamplingParams | None = None
) -> list[list[int]]:
    return [together(engine, [text], [name], sampling)[0] for text, name in zip(texts, names, strict=True)]


@pytest.fixture(scope="module")
def engine(model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]) -> Engine:
    """With all eight."""
    return make_engine(model_folder("llama"), adapters("llama"))


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Step, torch.Tensor]]:
    """What its model computes from now on."""
    runner, seen = engine.runner, list[tuple[Step, torch.Tensor]]()
    assert isinstance(runner, ModelRunner)
    forward = runner._forward

    def noted(step: Step) -> torch.Tensor:
        seen.append((step, forward(step)))
        return seen[-1][1]

    monkeypatch.setattr(runner, "_forward", noted)
    return seen


@pytest.mark.parametrize("each", [0, 10**6], ids=["each for its own", "all at once, masked"])
def test_eight_adapters_and_the_model_itself_in_one_batch_have_pefts_logits(
    each: int,
    engine: Engine,
    model_folder: Callable[[str], Path],
    adapters: Callable[..., list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layer, "TOKENS_EACH", each)
    texts, seen = prompts(), watched(engine, monkeypatch)
    for number, (text, name) in enumerate(zip(texts, NAMES, strict=True)):
        ask(engine, number, text, greedy(1), name)
    finish(engine)
    ((step, logits),) = seen
    folders = [*adapters("llama"), None]
    for place, found in zip(step.sampled, logits, strict=True):
        (expected,) = lora.logits(model_folder("llama"), folders[place], [texts[place]])
        assert (found - expected).abs().max() < BOUND
        (plain,) = lora.logits(model_folder("llama"), None, [texts[place]])
        assert place == 8 or (plain - expected).abs().max() > 100 * BOUND, "the adapter matters"


@pytest.mark.parametrize("shape", ["llama", "qwen3", "qwen2", "gemma3_text", "gemma2", "mistral"])
def test_tokens_of_each_family_are_pefts(
    shape: str, model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    folders: list[Path | None] = [*adapters(shape, 3), None]
    made = make_engine(model_folder(shape), adapters(shape, 3))
    texts = prompts()[1:5]
    expected = [lora.greedy(model_folder(shape), *pair, 12) for pair in zip(folders, texts, strict=True)]
    assert together(made, texts, ["a0", "a1", "a2", ""]) == expected


@pytest.mark.parametrize(
    ("shape", "targets"),
    [
        *[(shape, "all-linear") for shape in ("opt", "phi3", "granite", "olmo2", "glm4", "smollm3", "cohere2", "gpt_oss", "narrow")],
        ("deepseek_v3", ["q_a_proj", "q_b_proj", "kv_b_proj", "o_proj"]),  # the others' would adapt their experts, too
        ("mixtral", ["q_proj", "v_proj", "o_proj"]),
        ("mellum", ["q_proj", "v_proj", "o_proj"]),
    ],
)  # fmt: skip
def test_every_linear_layer_that_peft_adapts_is_adapted_whatever_the_family(
    shape: str, targets: str | list[str], model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """In some, layers that are joined are declared in another order."""
    folder = model_folder(shape)
    adapter = lora.save(folder, tmp_path, r=4, target_modules=targets)
    made = make_engine(folder, [adapter])
    texts = prompts()[2:4]
    expected = [
        lora.greedy(folder, which, text, 8) for which, text in zip((adapter, None), texts, strict=True)
    ]
    assert together(made, texts, ["a0", ""], greedy(8)) == expected


@pytest.mark.skipif(native.find(torch.device("cpu"), torch.float32) is None, reason="no CPU kernels")
def test_steps_in_which_no_row_has_an_adapter_are_one_kernel_call_as_without_the_flag(
    engine: Engine,
) -> None:
    (layers,) = [one for one in engine.runner.model.modules() if isinstance(one, FusedLayers)]  # type: ignore[attr-defined]
    calls: list[object] = []
    hooks = [one.register_forward_hook(lambda *_: calls.append(1)) for one in layers.layers]
    together(engine, prompts()[:2], ["", ""])
    assert not calls
    together(engine, prompts()[:2], ["", "a0"])
    assert calls
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("way", ["no kernels", "as transformers has them", "Triton's kernels"])
def test_layers_that_are_packed_otherwise_or_not_at_all_are_adapted_too(
    way: str,
    model_folder: Callable[[str], Path],
    adapters: Callable[..., list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "find", lambda *_: None)
    if way == "Triton's kernels":
        operators = pytest.importorskip("llmendpoint_server.engine.triton.operators").TritonOperators
        like_cuda = operators(torch.device("cpu"), torch.float32, 0)
        monkeypatch.setattr(preparing, "_operators", lambda *_: like_cuda)
    elif way != "no kernels":
        monkeypatch.setattr(surgery, "operate", lambda *_, **__: None)
    made = make_engine(model_folder("llama"), adapters("llama", 4))
    texts = prompts()[1:5]
    folders = adapters("llama", 4)
    expected = [lora.greedy(model_folder("llama"), *pair, 12) for pair in zip(folders, texts, strict=True)]
    assert together(made, texts, NAMES[:4]) == expected


def test_seeded_tokens_are_the_same_alone_in_company_cut_and_preempted(
    engine: Engine, model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    sampling = SamplingParams(30, temperature=0.7, seed=5, ignore_eos=True)
    texts = prompts((15, 14, 13, 12, 16, 9, 11, 31, 5))
    expected = alone(engine, texts, NAMES, sampling)
    assert together(engine, texts, NAMES, sampling) == expected
    few = make_engine(
        model_folder("llama"), adapters("llama"), max_batched_tokens=13, max_num_seqs=4, max_model_len=64,
        kv_cache_memory=6 * 4 * 2 * 2 * 16 * 16 * 4,
    )  # fmt: skip
    assert together(few, texts, NAMES, sampling) == expected
    assert few.scheduler.counters.preemptions > 0


def test_adapters_and_the_model_never_share_keys_and_values_but_each_finds_its_own(engine: Engine) -> None:
    text = tuple(range(100, 150))
    counters = engine.scheduler.counters
    first = {name: alone(engine, [text], [name])[0] for name in NAMES}
    assert len(set(map(tuple, first.values()))) > 5
    before = counters.prefix_cache_hits
    assert {name: alone(engine, [text], [name])[0] for name in NAMES} == first
    assert counters.prefix_cache_hits - before == len(NAMES) * 48


def test_a_name_that_was_loaded_again_does_not_find_what_its_first_weights_computed(
    model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    folder, (one, other) = model_folder("llama"), adapters("llama", 2)
    made = make_engine(folder, [one])
    text = tuple(range(100, 150))
    alone(made, [text], ["a0"])
    assert load_now(made, LoadAdapter(1, "a0", str(other))) == AdapterChanged(1, generation=2)
    hits = made.scheduler.counters.prefix_cache_hits
    assert alone(made, [text], ["a0"]) == [lora.greedy(folder, other, text, 12)]
    assert made.scheduler.counters.prefix_cache_hits == hits


@pytest.mark.parametrize("way", ["ngram", "draft"])
def test_speculation_changes_no_token_of_an_adapter(
    way: str, engine: Engine, model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    """A draft model guesses without the adapter, which costs guesses and no more."""
    folder = model_folder("llama")
    more = {"speculative_method": "ngram"} if way == "ngram" else {"draft_model_path": str(folder)}
    made = make_engine(folder, adapters("llama"), **more)
    texts, names = [text * 3 for text in prompts((5, 7, 9, 4))], ["a0", "", "a1", "a3"]
    assert together(made, texts, names, greedy(60)) == together(engine, texts, names, greedy(60))
    assert made.scheduler.counters.draft_tokens > 0


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.skipif(native.find(torch.device("cpu"), torch.float32) is None, reason="no CPU kernels")
def test_an_adapter_over_quantized_weights_is_as_near_to_peft_as_the_model_itself(
    quantization: str,
    model_folder: Callable[[str], Path],
    adapters: Callable[..., list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_engine(model_folder("llama"), adapters("llama", 1), quantization=quantization)
    text, seen = prompts()[3], watched(made, monkeypatch)
    alone(made, [text, text], ["", "a0"], greedy(1))
    folders = [None, adapters("llama", 1)[0]]
    expected = [lora.logits(model_folder("llama"), folder, [text])[0] for folder in folders]
    off = [
        float((found[0] - exact).std() / exact.std())
        for (_, found), exact in zip(seen, expected, strict=True)
    ]
    assert off[1] < max(3 * off[0], 0.1)
    assert (expected[0] - expected[1]).std() > 0.5 * expected[0].std()


@pytest.mark.parametrize("each", [0, 10**6], ids=["each for its own", "all at once, masked"])
def test_an_adapter_that_makes_infinities_fails_its_own_requests_alone(
    each: int,
    model_folder: Callable[[str], Path],
    adapters: Callable[..., list[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layer, "TOKENS_EACH", each)
    folder = model_folder("llama")
    lora.save(folder, tmp_path, **lora.KINDS[0])
    file = tmp_path / "adapter_model.safetensors"
    tensors = {
        name: torch.full_like(one, 3e38 if "lora_A" in name else 1.0) for name, one in load_file(file).items()
    }
    save_file(tensors, file)
    texts, names = prompts()[:4], ["a0", "", "a2", "a1"]
    made = make_engine(folder, [adapters("llama")[0], tmp_path, adapters("llama")[1]])
    expected = alone(made, texts[:3], names[:3])
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        ask(made, number, text, greedy(), name)
    found: dict[str, list[int]] = {}
    failed = set()
    while not made.scheduler.idle:
        for output in made.step():
            found.setdefault(output.id, []).extend(output.tokens)
            failed |= {output.id} if output.finish is FinishReason.FAILED else set()
    assert failed == {"3"}
    assert [found[str(number)] for number in range(3)] == expected


# Changes while requests run


def load_now(engine: Engine, asked: LoadAdapter) -> AdapterChanged:
    assert engine.runner.stack is not None
    made = Changes(engine.runner.stack, engine.scheduler)
    assert made.ask(asked) == []
    while not (done := made.advance()):
        pass
    assert not made
    return done[0]


def test_requests_keep_the_weights_that_they_began_with_when_theirs_are_replaced_or_let_go(
    model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    folder, paths = model_folder("llama"), adapters("llama", 3)
    made = make_engine(folder, paths[:1], max_loras=1)
    assert made.runner.stack is not None
    texts = prompts((9, 14, 5))
    ask(made, 0, texts[0], greedy(20), "a0")
    made.step()
    assert load_now(made, LoadAdapter(1, "a0", str(paths[1]))).refused == ""
    ask(made, 1, texts[1], greedy(20), "a0")
    made.step()
    full = load_now(made, LoadAdapter(2, "a0", str(paths[2])))
    assert (full.refused, "requests still run" in full.detail) == ("full", True)
    assert Changes(made.runner.stack, made.scheduler).ask(UnloadAdapter(3, "a0")) == [AdapterChanged(3)]
    (lost,) = made.add(Request("2", texts[2], greedy(4), adapter="a0"))
    assert lost.finish is FinishReason.LOST
    found = finish(made)
    whole = [lora.greedy(folder, paths[n], texts[n], 20) for n in (0, 1)]
    assert [found[n] for n in (0, 1)] == [tokens[-len(found[n]) :] for n, tokens in enumerate(whole)]
    assert load_now(made, LoadAdapter(4, "b", str(paths[2]))).refused == ""
    assert alone(made, [texts[2]], ["b"]) == [lora.greedy(folder, paths[2], texts[2], 12)]


class Slow:
    """A disk that gives an adapter when it is told to."""

    def __init__(self) -> None:
        self.work: Callable[[], list[Piece]] | None = None
        self.read: Future[list[Piece]] = Future()

    def __call__(self, work: Callable[[], list[Piece]]) -> Future[list[Piece]]:
        self.work = work
        return self.read

    def give(self) -> None:
        assert self.work is not None
        self.read.set_result(self.work())


def test_steps_go_on_while_an_adapter_is_read_and_one_step_waits_for_one_piece_at_most(
    engine: Engine, adapters: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "COPIED_AT_ONCE", 1)
    slow = Slow()
    stack = engine.runner.stack
    assert stack is not None
    copied: list[int] = []
    filling = stack.fill

    def counted(place: int, pieces: list[Piece], most: int) -> Iterator[None]:
        for _ in filling(place, pieces, most):
            copied[-1] += 1
            yield

    monkeypatch.setattr(stack, "fill", counted)
    made = Changes(stack, engine.scheduler, slow)
    expected = alone(engine, prompts()[:1], ["a1"], greedy(60))
    ask(engine, 0, prompts()[0], greedy(60), "a1")
    assert made.ask(LoadAdapter(1, "a0", str(adapters("llama")[2]))) == []
    tokens: list[int] = []
    steps, done = 0, list[AdapterChanged]()
    while not engine.scheduler.idle:  # as the engine's process does it
        for output in engine.step():
            tokens += output.tokens
        copied.append(0)
        done += made.advance()
        steps += 1
        if steps == 20:
            slow.give()
    assert tokens == expected[0], "a token with each step, and the right ones"
    assert done == [AdapterChanged(1, generation=9)]
    assert copied[:19] == [0] * 19
    assert max(copied) == 1
    assert sum(copied) > 10


def test_loads_that_are_asked_for_at_one_time_are_done_one_after_another(
    model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]], tmp_path: Path
) -> None:
    made = make_engine(model_folder("llama"), [])
    assert made.runner.stack is not None
    asked = Changes(made.runner.stack, made.scheduler)
    paths = [*map(str, adapters("llama", 2)), str(tmp_path)]
    for call, path in enumerate(paths):
        asked.ask(LoadAdapter(call, f"b{call}", path))
    done: list[AdapterChanged] = []
    while asked:
        done += asked.advance()
    assert [(one.call, one.refused, one.generation) for one in done] == [
        (0, "", 1),
        (1, "", 2),
        (2, "unfit", 0),
    ]
    assert "adapter_config.json" in done[2].detail
    assert made.scheduler.adapters.names == ["b0", "b1"]
    assert asked.ask(UnloadAdapter(9, "none"))[0].refused == "unknown"


def test_an_adapter_of_the_command_line_that_does_not_fit_ends_the_start(
    model_folder: Callable[[str], Path], adapters: Callable[..., list[Path]]
) -> None:
    with pytest.raises(BadConfiguration, match=r"--lora-modules a3=.*its rank is 16; --max-lora-rank is 8"):
        make_engine(model_folder("llama"), adapters("llama", 4), max_lora_rank=8)
