"""docs/concepts/weights.md: keys and values in 8 bits, one scale for each token and head, read in place by the CPU kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import gate, native
from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.in_place import InPlace
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.fused import FusedLayers
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import Configure
from server.tests.engine.test_native import CASES, CPU, SHAPES, TOLERANCE, apart, chunks, kernels
from server.tests.engine.test_tokens import generate, greedy, make_engine, prompts

Kept = Literal["int8", "fp8"]
TYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
LARGEST = {"int8": 127.0, "fp8": 448.0}


def rounded(states: torch.Tensor, kept: Kept) -> torch.Tensor:
    """What keys or values `[..., dim]` are once they were kept in 8 bits."""
    scale = states.float().abs().amax(-1, keepdim=True) / LARGEST[kept]
    codes = states.float() / scale
    return (codes.round() if kept == "int8" else codes.to(TYPES[kept]).float()) * scale


@pytest.mark.parametrize("kept", TYPES)
@pytest.mark.parametrize(("variant", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape[:4])))
def test_attention_is_that_over_the_rounded_keys_and_values_whatever_former_owners_left(
    variant: str, dtype: torch.dtype, shape: tuple[int, int, int, int, Rules], kept: Kept
) -> None:
    heads, kv_heads, key_dim, value_dim, rules = shape
    torch.manual_seed(0)
    pool = random.Random(1).sample(range(64), 64)
    tables = [[pool.pop() for _ in range((length + 20) // 16 + 1)] for length in (5, 1, 300, 40, 17, 160)]
    ours, theirs = InPlace(kernels(variant), 64, dtype, TYPES[kept]), Gathered(64, 16, CPU, torch.float32)
    one = [torch.zeros(1, kv_heads, 1, dim, dtype=dtype) for dim in (key_dim, value_dim)]
    layer = ours.cache.layer(0, *one, rules.sliding_window)
    assert layer.key_scales is not None
    assert layer.value_scales is not None
    for part in (layer.keys, layer.values):
        part.view(torch.uint8).fill_(0x7F)
    layer.key_scales.fill_(torch.nan)
    layer.value_scales.fill_(torch.nan)
    for phase in range(3):
        batch = chunks(tables, phase)
        query, key, value = (
            torch.randn(1, batch.tokens, count, dim).to(dtype).transpose(1, 2)
            for count, dim in ((heads, key_dim), (kv_heads, key_dim), (kv_heads, value_dim))
        )
        found = ours.attend(ours.prepare(batch), 0, query, key, value, rules)
        # The reference computes whole prompts from what it is given, so it gets the rounded ones.
        expected = theirs.attend(
            theirs.prepare(batch), 0, query.float(), rounded(key, kept), rounded(value, kept), rules
        )
        # Where a number lies between two codes, the last bit of a product decides.
        assert apart(found, expected) < max(TOLERANCE[dtype], 2e-3), phase


@pytest.mark.parametrize("kept", TYPES)
def test_a_page_holds_the_same_bytes_however_a_prompt_was_cut(kept: Kept) -> None:
    torch.manual_seed(0)
    states = [torch.randn(1, heads, 50, 32) for heads in (4, 2, 2)]
    rules, found = Rules(0.2, None, None, None), []
    for cuts in ((50,), (7, 20, 23), (1,) * 50, (16, 16, 16, 2)):
        backend = InPlace(kernels("avx2"), 4, torch.float32, TYPES[kept])
        start, parts = 0, []
        for count in cuts:
            sequence = Sequence(
                Request("a", (0,), SamplingParams(1)), 0, [0] * (start + count), [], table=[2, 0, 3, 1]
            )
            step = backend.prepare(Batch((Scheduled(sequence, start, count),), 0.0))
            parts.append(backend.attend(step, 0, *(s[:, :, start : start + count] for s in states), rules))
            start += count
        layer = backend.cache.layers[0]
        pages = layer.keys, layer.values, layer.key_scales, layer.value_scales
        found.append((torch.cat(parts), [part.view(torch.uint8) for part in pages if part is not None]))
    for tokens, pages in found[1:]:
        assert torch.equal(tokens, found[0][0])
        assert all(torch.equal(one, other) for one, other in zip(pages, found[0][1], strict=True))


def test_every_float_of_eight_bits_is_kept_as_it_is() -> None:
    """All codes of e4m3, beside the largest, so that the scale is 1."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    codes = codes[~codes.isnan()]
    rows = torch.stack([torch.cat([part, torch.full((16 - len(part),), 448.0)]) for part in codes.split(15)])
    backend = InPlace(kernels("avx2"), 2, torch.float32, torch.float8_e4m3fn)
    sequence = Sequence(Request("a", (0,), SamplingParams(1)), 0, [0] * len(rows), [], table=[0, 1])
    values = rows.view(1, 1, len(rows), 16)
    one = torch.zeros(1, 1, len(rows), 16)
    # A window of one: each token sees itself alone.
    out = backend.attend(
        backend.prepare(Batch((Scheduled(sequence, 0, len(rows)),), 0.0)), 0, one, one, values, Rules(1.0, 1, None, None)
    )  # fmt: skip
    assert torch.equal(out.view(rows.shape), rows)


@pytest.mark.parametrize("kept", TYPES)
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_value_that_is_no_number_spoils_its_own_sequence_and_no_other(kept: Kept, number: float) -> None:
    torch.manual_seed(0)
    backend = InPlace(kernels("avx2"), 8, torch.float32, TYPES[kept])
    rows = [
        Scheduled(
            Sequence(Request(str(n), (0,), SamplingParams(1)), 0, [0] * 20, [], table=[n, n + 4]), 0, 20
        )
        for n in range(2)
    ]
    states = [torch.randn(1, heads, 40, 16) for heads in (4, 2, 2)]
    states[2][0, :, 3, 5] = number
    out = backend.attend(backend.prepare(Batch(tuple(rows), 0.0)), 0, *states, Rules(0.2, None, None, None))
    assert not out[3:20].isfinite().all()
    assert out[20:].isfinite().all()


@pytest.mark.parametrize("kept", TYPES)
@pytest.mark.parametrize("shape", ["llama", "gemma3_text", "mistral"])
def test_tokens_are_the_same_alone_in_a_batch_cut_preempted_and_from_the_prefix_cache(
    kept: Kept, shape: str, model_folder: Callable[[str], Path]
) -> None:
    texts = prompts()
    engine = make_engine(model_folder(shape), kv_cache_dtype=kept)
    alone = [generate(engine, [text], greedy())[0] for text in texts]
    before = engine.scheduler.counters.prefix_cache_hits
    assert generate(engine, texts, greedy()) == alone
    assert engine.scheduler.counters.prefix_cache_hits > before
    cut = make_engine(
        model_folder(shape), kv_cache_dtype=kept, kv_cache_memory=1 << 18, max_batched_tokens=19, prefix_caching=False
    )  # fmt: skip
    assert generate(cut, texts, greedy()) == alone


@pytest.mark.parametrize("kept", TYPES)
def test_the_same_memory_holds_more_pages(kept: Kept, model_folder: Callable[[str], Path]) -> None:
    def pages(**settings: object) -> int:
        return make_engine(model_folder("llama"), kv_cache_memory=1 << 20, **settings).scheduler.blocks.pages

    # 16 dimensions in float32 are 64 bytes, and 16 and a scale of 4 are 20.
    assert pages(kv_cache_dtype=kept) == pytest.approx(pages() * 64 / 20, abs=1)


@pytest.mark.parametrize("kept", TYPES)
def test_layers_in_one_call_compute_the_same_as_one_by_one(
    kept: Kept, model_folder: Callable[[str], Path]
) -> None:
    runner, info = load(
        Configure(str(model_folder("llama")), device="cpu", dtype="float32", kv_cache_dtype=kept, max_model_len=64)
    )  # fmt: skip
    assert sum(isinstance(module, FusedLayers) for module in runner.model.modules()) == 1
    assert info.kv_dtype == kept
    folder = model_folder("llama")
    whole, _ = load(Configure(str(folder), device="cpu", dtype="float32", max_model_len=64))
    texts = gate.probe_prompts(512)
    found, expected = (
        gate.paged_logits(one.model, texts, lambda pages, one=one: fresh(one.backend, pages))[0]  # type: ignore[misc]  # bound at once
        for one in (runner, whole)
    )
    assert 0 < gate.worst_median(found, expected) < 0.05


def fresh(backend: object, pages: int) -> InPlace:
    assert isinstance(backend, InPlace)
    kind = native.find(CPU, torch.float32)
    assert kind is not None
    return InPlace(kind, pages, torch.float32, backend.cache.kept)


def test_it_needs_the_kernels_and_says_so(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", None)
    with pytest.raises(BadConfiguration, match="--kv-cache-dtype is fp8, which needs the CPU kernels"):
        load(Configure(str(model_folder("llama")), device="cpu", dtype="float32", kv_cache_dtype="fp8"))


def test_heads_that_the_kernels_do_not_read_are_refused(model_folder: Callable[[str], Path]) -> None:
    with pytest.raises(BadConfiguration, match="the kernels do not read heads of this model's size"):
        load(Configure(str(model_folder("narrow")), device="cpu", dtype="float32", kv_cache_dtype="int8"))
