"""docs/concepts/architecture.md: on CUDA decode steps are graphs over our own attention kernels, and nothing in them waits for the device.

Needs a CUDA device; skipped elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.cache import PAGE_SIZE, LayerCache, PagedCache
from llmendpoint_server.engine.attention.choice import reference
from llmendpoint_server.engine.attention.trial import fails
from llmendpoint_server.engine.attention.triton import Triton
from llmendpoint_server.engine.attention.varlen import Varlen
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.headroom import largest_batches
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.engine.sampling import static
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.sampling.static import Parameters, Stages
from llmendpoint_server.engine.triton import sampling as kernels
from llmendpoint_server.protocol import Configure

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
CUDA = torch.device("cuda")
ROWS, TOKENS, LONGEST = 6, 64, 256


@pytest.fixture
def may_wait() -> Iterator[Callable[[str], None]]:
    """Sets whether torch raises at an operation that waits for the device; "default" again afterwards."""
    yield torch.cuda.set_sync_debug_mode
    torch.cuda.set_sync_debug_mode("default")


def brought_up(folder: Path) -> tuple[ModelRunner, Engine]:
    configure = Configure(
        str(folder),
        device="cuda",
        dtype="bfloat16",
        max_model_len=LONGEST,
        max_num_seqs=ROWS,
        max_batched_tokens=TOKENS,
    )
    runner, info = load(configure)
    return runner, Engine(runner, make_scheduler(configure, info), launcher=runner)


def layer(heads: int, dim: int) -> LayerCache:
    one = torch.zeros(1, heads, 1, dim, dtype=torch.bfloat16, device=CUDA)
    return PagedCache(1, 16).layer(0, one, one, None)


PLAIN = Rules(0.2, None, None, None)


@pytest.mark.parametrize(
    "rules",
    [
        PLAIN,
        Rules(0.2, 20, None, None),
        Rules(0.2, None, 5.0, None),
        Rules(0.2, 20, 5.0, torch.tensor([0.5, -1, 2, 0])),
    ],
    ids=["plain", "window", "soft cap", "window, cap and sinks"],
)
@pytest.mark.parametrize(
    ("dtype", "dims"),
    [
        *(
            (torch.bfloat16, dims)
            for dims in ((16, 16), (64, 64), (128, 128), (256, 256), (192, 128), (80, 80))
        ),
        (torch.float16, (128, 128)),
        (torch.float32, (64, 64)),
    ],
    ids=str,
)
def test_our_kernels_give_what_the_reference_gives(
    dtype: torch.dtype, dims: tuple[int, int], rules: Rules
) -> None:
    on_device = rules if rules.sinks is None else replace(rules, sinks=rules.sinks.to(CUDA))
    key, value = (torch.zeros(1, 2, 1, dim, dtype=dtype, device=CUDA) for dim in dims)
    one = PagedCache(1, 16).layer(0, key, value, None)
    make = partial(Triton, device=CUDA, dtype=dtype)
    assert fails(make, reference(CUDA, dtype), (one,), (on_device,)) is None


@pytest.mark.skipif(
    "block_table" not in signature(varlen_attn).parameters, reason="this torch's kernel has no pages"
)
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_torchs_kernel_gives_what_the_reference_gives(dim: int, window: int | None) -> None:
    make = partial(Varlen, device=CUDA, dtype=torch.bfloat16)
    rules = Rules(dim**-0.5, window, None, None)
    assert fails(make, reference(CUDA, torch.bfloat16), (layer(2, dim),), (rules,)) is None


@pytest.mark.parametrize(
    ("shape", "captured"),
    [
        ("llama", True),
        ("mistral", True),
        ("qwen3", True),
        ("gemma2", True),
        ("gemma3_text", True),
        ("gpt_oss", False),
        ("mixtral", False),
    ],
)
def test_our_kernels_serve_every_shape_and_what_waits_for_no_device_is_captured(
    shape: str, captured: bool, model_folder: Callable[[str], Path]
) -> None:
    runner, _ = brought_up(model_folder(shape))
    assert type(runner.backend) is Triton
    assert captured <= (runner._graphs is not None)


@pytest.mark.parametrize("shape", ["llama", "gemma3_text", "mixtral"])
def test_every_request_gets_all_its_tokens(shape: str, model_folder: Callable[[str], Path]) -> None:
    _, engine = brought_up(model_folder(shape))
    for n in range(12):
        sampling = SamplingParams(20, temperature=n % 2, top_p=0.9, seed=n, ignore_eos=True)
        engine.add(Request(str(n), tuple(range(3, 20 + 7 * n)), sampling))
    tokens: dict[str, int] = {}
    ends = []
    while not engine.scheduler.idle:
        for output in engine.step():
            tokens[output.id] = tokens.get(output.id, 0) + len(output.tokens)
            ends += [output.finish] if output.finish else []
    assert ends == [FinishReason.LENGTH] * 12
    assert set(tokens.values()) == {20}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_step_that_begins_before_the_one_before_was_read_gives_the_same_tokens(
    temperature: float, model_folder: Callable[[str], Path]
) -> None:
    """Sequences end at different steps, and new ones begin."""

    def said(ahead: bool) -> dict[str, list[int]]:
        runner, engine = brought_up(model_folder("qwen3"))
        if ahead:
            engine = Engine(runner, engine.scheduler, launcher=runner)
        for n in range(14):
            sampling = SamplingParams(10 + 7 * n, temperature=temperature, top_p=0.9, seed=n, ignore_eos=True)
            engine.add(Request(str(n), tuple(range(3, 20 + 3 * n)), sampling))
        tokens: dict[str, list[int]] = {}
        while not engine.scheduler.idle:
            for output in engine.step():
                tokens.setdefault(output.id, []).extend(output.tokens)
        return tokens

    alone, ahead = said(False), said(True)
    assert {name: len(tokens) for name, tokens in ahead.items()} == {str(n): 10 + 7 * n for n in range(14)}
    # A batch of another size rounds otherwise, so a token may differ; what a step read too early would differ at once.
    same = sum(ahead[name][:8] == alone[name][:8] for name in alone)
    assert same >= 11


def decoding(places: tuple[int, ...], temperature: float) -> Batch:
    rows = []
    for n, place in enumerate(places):
        sampling = SamplingParams(9, temperature=temperature, top_p=0.9, top_k=40)
        ids = [3 + (n * 31 + at) % 400 for at in range(place + 1)]
        table = [n + len(places) * page for page in range(len(ids) // PAGE_SIZE + 1)]
        rows.append(Scheduled(Sequence(Request(str(n), (0,), sampling), n, ids, [], table=table), place, 1))
    return Batch(tuple(rows), 0.0)


@pytest.mark.parametrize("places", [(4,), (4, 9, 30), (4, 9, 30, 31, 70)])
def test_a_replay_gives_the_logits_of_the_same_rows_without_a_graph(
    places: tuple[int, ...], model_folder: Callable[[str], Path]
) -> None:
    runner, _ = brought_up(model_folder("llama"))
    graphs = runner._graphs
    assert graphs is not None
    batch = decoding(places, 0.0)
    size = next(size for size in graphs.sizes if size >= len(places))
    step = runner.backend.prepare(batch, [runner._spare] * (size - len(places)))
    expected = forward(runner.model, runner.backend, step)[: len(places)].clone()
    graphs.run(batch)
    torch.testing.assert_close(graphs.logits[: len(places)], expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_in_a_decode_step_waits_for_the_device_until_its_tokens_are_read(
    temperature: float, model_folder: Callable[[str], Path], may_wait: Callable[[str], None]
) -> None:
    runner, _ = brought_up(model_folder("llama"))
    runner.run(decoding((4, 9, 30), temperature))
    may_wait("error")
    for further in range(3):
        runner.run(decoding((5 + further, 10 + further, 31 + further), temperature))


def test_the_largest_steps_fit_beside_the_cache_and_the_graphs(model_folder: Callable[[str], Path]) -> None:
    runner, _ = brought_up(model_folder("llama"))
    for batch in largest_batches(ROWS, TOKENS, LONGEST, runner.backend.cache.page_size):
        runner.run(batch)


@pytest.mark.parametrize("stages", [static, kernels], ids=["torch", "kernels"])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_samplers_of_a_graph_draw_what_the_sampler_draws_on_a_cpu(stages: Stages, step: float) -> None:
    rows = 40
    logits = torch.randn(rows, 50_000, generator=torch.Generator().manual_seed(1)) * 3
    if step:
        logits = (logits / step).round() * step
    sequences = [
        Sequence(
            Request(
                "r", (0,), SamplingParams(8, [0.7, 1.0, 0][n % 3], top_p=[1, 0.9][n % 2], top_k=7 * (n % 5))
            ),
            n,
            [0],
            [],
        )
        for n in range(rows)
    ]
    parameters = Parameters(rows, CUDA)
    parameters.load(sequences, rows)
    there = logits.to(CUDA)
    highest, tokens = torch.empty(rows, device=CUDA), torch.empty(rows, dtype=torch.int64, device=CUDA)
    stages.most_probable(there, highest, tokens)
    stages.draw(there, highest, parameters.array(rows), tokens, True)
    assert tokens.tolist() == Sampler()(logits, sequences)
