"""docs/concepts/architecture.md: on CUDA Triton's kernels compute what torch's operators compute, in any number of rows, and inside of a graph.

Needs a CUDA device; skipped elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from llmendpoint_server.engine import triton
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.fused import FusedAttention, FusedLayers, FusedMlp, FusedNorm
from llmendpoint_server.engine.operators import Gate, Heads, Scale
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.protocol import Configure

operators = pytest.importorskip(
    "llmendpoint_server.engine.triton.operators", reason="Triton is for Linux only"
)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
CUDA = torch.device("cuda")
ROWS = [1, 3, 64, 5000, 70_000]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    limit = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours.float(), theirs, rtol=limit, atol=limit)


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=CUDA).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dim", [80, 1024])
def test_a_norm_alone_and_after_a_sum_is_torchs(rows: int, dim: int, dtype: torch.dtype) -> None:
    ours, scale = operators.TritonOperators(CUDA, dtype), Scale(torch.rand(dim, device=CUDA) + 0.5, 1e-3)
    x, residual = drawn(1, rows, dim, dtype=dtype), drawn(1, rows, dim, dtype=dtype)
    near(ours.norm(x, scale), nn.functional.rms_norm(x.float(), (dim,), scale.weight, scale.eps))
    added, normed = ours.add_norm(x, residual, scale)
    assert torch.equal(added, x + residual)
    near(normed, nn.functional.rms_norm(added.float(), (dim,), scale.weight, scale.eps))


def test_the_widest_norm_is_torchs() -> None:
    ours, scale = (
        operators.TritonOperators(CUDA, torch.bfloat16),
        Scale(torch.ones(16_384, device=CUDA), 1e-6),
    )
    x = drawn(7, 16_384, dtype=torch.bfloat16)
    near(ours.norm(x, scale), nn.functional.rms_norm(x.float(), (16_384,), None, 1e-6))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS[:-1])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "rotary"), [(Heads(16, 8, 128), 128), (Heads(5, 1, 80), 32)])
def test_heads_are_normed_and_turned_in_place_and_values_stay(
    heads: Heads, rotary: int, normed: bool, rows: int, dtype: torch.dtype
) -> None:
    angles = torch.rand(1, rows, rotary, device=CUDA) * 6
    turns = angles.cos().to(dtype), angles.sin().to(dtype)
    count = heads.queries + heads.keys
    qkv = drawn(1, rows, (count + heads.keys) * heads.dim, dtype=dtype)
    expected = qkv.clone().view(rows, -1, heads.dim).float()
    first, second = (Scale(torch.rand(heads.dim, device=CUDA) + 0.5, eps) for eps in (1e-3, 0.1))
    if normed:
        for part, norm in ((slice(heads.queries), first), (slice(heads.queries, count), second)):
            expected[:, part] = nn.functional.rms_norm(expected[:, part], (heads.dim,), norm.weight, norm.eps)
    cos, sin = (turn[0, :, None].float() for turn in turns)
    head = expected[:, :count, :rotary].clone()
    low, high = head.chunk(2, -1)
    expected[:, :count, :rotary] = head * cos + torch.cat([-high, low], -1) * sin
    operators.TritonOperators(CUDA, dtype).rotate(qkv, turns, heads, (first, second) if normed else None)
    near(qkv.view(rows, -1, heads.dim), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS[:-1])
@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_a_gate_is_torchs(kind: Gate, rows: int, dtype: torch.dtype) -> None:
    halves = drawn(1, rows, 2 * 3072, dtype=dtype)
    first, second = halves.float().chunk(2, -1)
    opened = nn.functional.silu(first) if kind == "silu" else nn.functional.gelu(first, approximate="tanh")
    near(operators.TritonOperators(CUDA, dtype).gate(halves, kind), opened * second)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("inputs", "outputs", "kind", "normed", "added"),
    [
        (1024, 4096, None, True, False),
        (2048, 1024, None, False, True),
        (1024, 3072, "silu", True, False),
        (3072, 1024, None, False, True),
        (14_336, 4096, "gelu_tanh", False, False),
        (5120, 100, None, True, True),
    ],
)
def test_a_linear_layer_of_few_rows_is_torchs_with_what_is_done_on_the_way(
    inputs: int, outputs: int, kind: Gate | None, normed: bool, added: bool, rows: int, ahead: bool
) -> None:
    if ahead and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the device cannot launch a kernel before another one has ended")
    dtype = torch.bfloat16
    weight = drawn(2 * outputs if kind else outputs, inputs, dtype=dtype) / inputs**0.5
    bias, scale = drawn(len(weight), dtype=dtype), Scale(torch.rand(inputs, device=CUDA) + 0.5, 1e-3)
    x, residual = drawn(1, rows, inputs, dtype=dtype), drawn(1, rows, outputs, dtype=dtype)
    ours = operators.TritonOperators(CUDA, dtype, ahead=ahead)
    found = ours.few(
        x, operators.Weights(weight, bias, kind), scale if normed else None, residual if added else None
    )
    expected = nn.functional.rms_norm(x.float(), (inputs,), scale.weight, scale.eps) if normed else x.float()
    expected = nn.functional.linear(expected, weight.float(), bias.float())
    if kind:
        first, second = expected.chunk(2, -1)
        gates = {
            "silu": nn.functional.silu(first),
            "gelu_tanh": nn.functional.gelu(first, approximate="tanh"),
        }
        expected = gates[kind] * second
    if added:
        expected = expected + residual.float()
    assert (found.float() - expected).abs().max() / expected.abs().max() < 0.02


@pytest.mark.parametrize("ahead", [False, True])
def test_kernels_that_ask_for_weights_ahead_read_what_the_one_before_wrote(ahead: bool) -> None:
    """A long chain in a graph, in which each kernel reads what the one before it wrote."""
    if ahead and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the device cannot launch a kernel before another one has ended")
    dtype = torch.bfloat16
    ours = operators.TritonOperators(CUDA, dtype, ahead=ahead)
    weights = [operators.Weights(drawn(1024, 1024, dtype=dtype) / 32, None) for _ in range(24)]
    scale, x = Scale(torch.ones(1024, device=CUDA), 1e-6), drawn(1, 2, 1024, dtype=dtype)

    def work() -> torch.Tensor:
        states = x
        for one in weights:
            states = ours.few(states, one, scale, states)
        return states

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    for _ in range(20):
        x.copy_(drawn(1, 2, 1024, dtype=dtype))
        graph.replay()
        expected = x
        for one in weights:
            normed = nn.functional.rms_norm(expected.float(), (1024,), None, 1e-6).to(dtype)
            expected = nn.functional.linear(normed, one.weight) + expected
        apart = (found.float() - expected.float()).abs().max() / expected.float().abs().max()
        assert apart < 0.05


def test_a_graph_holds_the_operators() -> None:
    ours = operators.TritonOperators(CUDA, torch.bfloat16)
    scale, heads = Scale(torch.rand(128, device=CUDA), 1e-6), Heads(4, 2, 32)
    x, qkv = drawn(1, 5, 128, dtype=torch.bfloat16), drawn(1, 5, 256, dtype=torch.bfloat16)
    turns = drawn(1, 5, 32, dtype=torch.bfloat16), drawn(1, 5, 32, dtype=torch.bfloat16)

    def work() -> list[torch.Tensor]:
        turned = qkv.clone()
        ours.rotate(turned, turns, heads, None)
        return [ours.norm(x, scale), *ours.add_norm(x, x, scale), turned, ours.gate(turned, "silu")]

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    x.copy_(drawn(1, 5, 128, dtype=torch.bfloat16))
    qkv.copy_(drawn(1, 5, 256, dtype=torch.bfloat16))
    graph.replay()
    for one, other in zip(found, work(), strict=True):
        assert torch.equal(one, other)


def brought_up(folder: Path, dtype: str = "bfloat16") -> ModelRunner:
    configure = Configure(
        str(folder), device="cuda", dtype=dtype, max_model_len=256, max_num_seqs=6, max_batched_tokens=64
    )
    return load(configure)[0]


def modules(model: object, kind: type) -> int:
    return sum(isinstance(module, kind) for module in model.modules())  # type: ignore[attr-defined]


def test_the_kernels_compile_on_this_device() -> None:
    assert triton.find(CUDA, torch.bfloat16) is not None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("shape", "runs", "attentions", "mlps", "norms"),
    [
        ("llama", 1, 4, 4, 9),
        ("qwen3", 1, 4, 4, 9),
        ("mistral", 1, 4, 4, 9),
        ("gemma3_text", 0, 7, 7, 29),
        ("mixtral", 0, 4, 0, 9),
        ("gpt2", 0, 0, 0, 0),
    ],
)
def test_what_a_family_shares_with_llama_is_fused_and_what_it_has_of_its_own_is_kept(
    shape: str,
    runs: int,
    attentions: int,
    mlps: int,
    norms: int,
    dtype: str,
    model_folder: Callable[[str], Path],
) -> None:
    model = brought_up(model_folder(shape), dtype).model
    assert modules(model, FusedLayers) == runs
    assert modules(model, FusedAttention) == attentions
    assert modules(model, FusedMlp) == mlps
    assert modules(model, FusedNorm) == norms
