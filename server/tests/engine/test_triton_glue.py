"""docs/concepts/architecture.md: Triton's kernels for CUDA compute what torch's operators compute, and serve the modules of any family where they do.

Without a CUDA device Triton interprets them: see conftest.py. Its bfloat16 is cut off instead of rounded, so that results may be one
step apart.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs
from torch import nn
from transformers import AutoModelForCausalLM

from llmendpoint_server.engine import gate, surgery, triton
from llmendpoint_server.engine.attention.choice import reference
from llmendpoint_server.engine.fused import FusedAttention, FusedLayers, FusedMlp, FusedNorm
from llmendpoint_server.engine.fusing import Fusing, fused_mlp, fused_norm
from llmendpoint_server.engine.operators import Gate, Heads, Scale, Turns

operators = pytest.importorskip(
    "llmendpoint_server.engine.triton.operators", reason="Triton is for Linux only"
)
CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
STEPS = {torch.float32: 2e-6, torch.float16: 1.1e-3, torch.bfloat16: 8e-3}
"""How far two neighbours are apart, as a share of them; in float32 of some."""
GATES = {"silu": nn.functional.silu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh")}
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="on CUDA test_gpu_glue.py runs the kernels themselves"
)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def near(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """`theirs` in float32."""
    step = STEPS[ours.dtype]
    return torch.allclose(ours.float(), theirs, rtol=step, atol=step * float(theirs.abs().mean()))


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 37])
@pytest.mark.parametrize("dim", [8, 80, 1024])
def test_a_norm_alone_and_after_a_sum_is_torchs(rows: int, dim: int, dtype: torch.dtype) -> None:
    scale = Scale(torch.rand(dim) + 0.5, 1e-3)
    x, residual = drawn(1, rows, dim, dtype=dtype), drawn(1, rows + 1, dim, dtype=dtype)[:, 1:]
    ours = operators.TritonOperators(CPU, dtype)
    assert near(ours.norm(x, scale), nn.functional.rms_norm(x.float(), (dim,), scale.weight, scale.eps))
    added, normed = ours.add_norm(x, residual, scale)
    assert near(added, x.float() + residual.float())
    assert near(normed, nn.functional.rms_norm(added.float(), (dim,), scale.weight, scale.eps))


def turned(x: torch.Tensor, turns: Turns) -> torch.Tensor:
    """`[T, heads, dim]`, as transformers' `apply_rotary_pos_emb` does it."""
    cos, sin = (turn[0, :, None].float() for turn in turns)
    head, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = head.chunk(2, -1)
    return torch.cat([head * cos + torch.cat([-second, first], -1) * sin, rest], -1)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("heads", "rotary"),
    [
        (Heads(4, 2, 16), 16),
        (Heads(5, 1, 80), 32),
        (Heads(2, 2, 12), 12),
        (Heads(16, 8, 128), 128),
        (Heads(3, 3, 64), 20),
    ],
)
def test_heads_are_normed_and_turned_in_place_and_values_stay(
    heads: Heads, rotary: int, normed: bool, dtype: torch.dtype
) -> None:
    angles = torch.rand(1, 7, rotary) * 6
    turns = angles.cos().to(dtype), angles.sin().to(dtype)
    count = heads.queries + heads.keys
    qkv = drawn(1, 7, (count + heads.keys) * heads.dim, dtype=dtype)
    expected = qkv.clone().view(7, -1, heads.dim).float()
    norms = Scale(torch.rand(heads.dim) + 0.5, 1e-3), Scale(torch.rand(heads.dim) + 0.5, 1e-1)
    if normed:
        for part, norm in zip((slice(heads.queries), slice(heads.queries, count)), norms, strict=True):
            expected[:, part] = nn.functional.rms_norm(expected[:, part], (heads.dim,), norm.weight, norm.eps)
    expected[:, :count] = turned(expected[:, :count], turns)
    operators.TritonOperators(CPU, dtype).rotate(qkv, turns, heads, norms if normed else None)
    assert near(qkv.view(7, -1, heads.dim), expected)
    values = drawn(*qkv.shape, dtype=dtype).view(7, -1, heads.dim)[:, count:]
    assert torch.equal(qkv.view(7, -1, heads.dim)[:, count:], values)


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("width", [10, 512, 700])
def test_a_gate_is_torchs_also_for_large_numbers(kind: Gate, width: int, dtype: torch.dtype) -> None:
    halves = drawn(1, 3, 2 * width, dtype=dtype)
    halves[0, 0, :4] = torch.tensor([60.0, -60.0, 200.0, -200.0])
    first, second = halves.float().chunk(2, -1)
    ours = operators.TritonOperators(CPU, dtype).gate(halves, kind)
    assert near(ours, GATES[kind](first) * second)


def test_no_rows_give_none() -> None:
    ours, scale = operators.TritonOperators(CPU, torch.float32), Scale(torch.ones(8), 1e-6)
    assert ours.norm(torch.empty(0, 8), scale).shape == (0, 8)
    assert ours.add_norm(torch.empty(0, 8), torch.empty(0, 8), scale)[1].shape == (0, 8)
    assert ours.gate(torch.empty(0, 8), "silu").shape == (0, 4)
    turns = torch.empty(1, 0, 4), torch.empty(1, 0, 4)
    ours.rotate(torch.empty(1, 0, 24), turns, Heads(4, 1, 4), None)


def modules(model: nn.Module, kind: type) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


@pytest.mark.parametrize(
    ("shape", "few_rows", "runs", "attentions", "mlps", "norms"),
    [
        ("llama", 0, 1, 4, 4, 9),
        ("qwen3", 0, 1, 4, 4, 9),
        pytest.param("qwen2", 0, 1, 4, 4, 9, marks=pytest.mark.extended),
        pytest.param("mistral", 0, 1, 4, 4, 9, marks=pytest.mark.extended),
        pytest.param("narrow", 0, 1, 4, 4, 9, marks=pytest.mark.extended),
        ("gemma3_text", 0, 0, 7, 7, 29),
        pytest.param("mixtral", 0, 0, 4, 0, 9, marks=pytest.mark.extended),
        ("smollm3", 0, 0, 2, 4, 9),
        pytest.param("mellum", 0, 0, 4, 4, 9, marks=pytest.mark.extended),
        ("gpt2", 8, 0, 0, 0, 0),
    ],
)
def test_a_family_keeps_its_logits_and_what_is_not_shown_to_be_equal_keeps_its_modules(
    shape: str,
    few_rows: int,
    runs: int,
    attentions: int,
    mlps: int,
    norms: int,
    model_folder: Callable[[str], Path],
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder(shape), dtype=torch.float32).eval()
    prompts = gate.probe_prompts(512, (4, 9, 11))
    expected = gate.reference_logits(model, prompts, CPU)
    gate.open_to_pages(shape, model)
    surgery.operate(model, operators.TritonOperators(CPU, torch.float32, few_rows))
    assert modules(model, FusedLayers) == runs
    assert modules(model, FusedAttention) == attentions
    assert modules(model, FusedMlp) == mlps
    assert modules(model, FusedNorm) == norms
    gate.check_pages(shape, model, expected, prompts, reference(CPU, torch.float32), 1e-3)


def test_steps_of_few_rows_and_of_many_have_the_logits_of_the_models_own_forward(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof at load has few rows, the prompts many, and the decodes few."""
    monkeypatch.setattr(operators, "_PROGRAMS", 1)
    folder = model_folder("qwen3")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, num_hidden_layers=2, layer_types=["full_attention"] * 2
    ).eval()
    prompts = gate.probe_prompts(512, (4, 9, 11))
    expected = gate.reference_logits(model, prompts, CPU)
    gate.open_to_pages("qwen3", model)
    surgery.operate(model, operators.TritonOperators(CPU, torch.float32))
    assert modules(model, FusedLayers) == 1
    gate.check_pages("qwen3", model, expected, prompts, reference(CPU, torch.float32), 1e-3)


def test_layers_are_kept_apart_if_one_of_them_has_a_step_of_its_own(
    model_folder: Callable[[str], Path],
) -> None:
    """Of its own: a factor of 0.97 on what the third layer adds."""
    model = AutoModelForCausalLM.from_pretrained(model_folder("granite"), dtype=torch.float32).eval()
    gate.open_to_pages("granite", model)
    model.model.layers[2].residual_multiplier = 0.97
    surgery.operate(model, operators.TritonOperators(CPU, torch.float32, 0))
    assert modules(model, FusedLayers) == 0
    assert modules(model, FusedMlp) == 4


class Norm(nn.Module):
    """Of no family: it adds what its weight does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64) + 0.5)
        self.eps = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, (64,), self.weight, self.eps) + 0.01


class Limited(nn.Module):
    """A gated feed-forward that bounds what lies between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(32, 64, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(64, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up_proj(x).clamp(-7, 7)
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * up)


def test_a_module_that_looks_like_another_one_and_computes_something_else_is_kept() -> None:
    torch.manual_seed(0)
    fusing = Fusing.by(operators.TritonOperators(CPU, torch.float32))
    with torch.inference_mode():
        assert fused_norm(Norm(), fusing) is None
        assert fused_mlp(Limited(), fusing) is None


def test_the_log_says_that_the_kernels_serve() -> None:
    with capture_logs() as logs:
        assert triton.find(CPU, torch.float32) is not None
    assert [line["event"] for line in logs] == ["Triton's kernels"]


def test_without_triton_the_log_says_so_and_torchs_operators_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llmendpoint_server.engine.triton.operators", None)
    with capture_logs() as logs:
        assert triton.find(CPU, torch.float32) is None
    assert logs[0]["cause"].startswith("ModuleNotFoundError")


def test_kernels_that_do_not_compile_are_a_line_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(operators.TritonOperators, "norm", failing)
    with capture_logs() as logs:
        assert triton.find(CPU, torch.float32) is None
    assert logs[0]["cause"] == "RuntimeError: Failed to find C compiler."


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "kind", "biased", "normed", "added"),
    [
        (1, 64, 24, None, False, True, False),
        (3, 96, 20, None, True, True, True),
        (8, 64, 12, "silu", False, True, False),
        (2, 80, 9, "gelu_tanh", True, False, True),
        (1, 5000, 6, None, False, False, True),
        (1, 9000, 3, "silu", True, True, False),
    ],
)
def test_a_linear_layer_of_few_rows_is_torchs_with_what_is_done_on_the_way(
    rows: int,
    inputs: int,
    outputs: int,
    kind: Gate | None,
    biased: bool,
    normed: bool,
    added: bool,
    dtype: torch.dtype,
) -> None:
    count = 2 * outputs if kind else outputs
    weight, bias = drawn(count, inputs, dtype=dtype) / inputs**0.5, drawn(count, dtype=dtype)
    x, residual = drawn(1, rows, inputs, dtype=dtype), drawn(1, rows, outputs, dtype=dtype)
    scale = Scale(torch.rand(inputs) + 0.5, 1e-3)
    expected = nn.functional.rms_norm(x.float(), (inputs,), scale.weight, scale.eps) if normed else x.float()
    expected = nn.functional.linear(expected, weight.float(), bias.float() if biased else None)
    if kind:
        first, second = expected.chunk(2, -1)
        expected = GATES[kind](first) * second
    if added:
        expected = expected + residual.float()
    weights = operators.Weights(weight, bias if biased else None, kind)
    ours = operators.TritonOperators(CPU, dtype).few(
        x, weights, scale if normed else None, residual if added else None
    )
    apart = (ours.float() - expected).abs().max() / expected.abs().max()
    assert apart < 4 * STEPS[dtype]


@pytest.mark.parametrize("capability", [pytest.param("80", marks=pytest.mark.extended), "90"])
def test_the_kernels_compile_for_gpus_that_are_not_there(capability: str, tmp_path: Path) -> None:
    """The interpreter takes more than the compiler does."""
    script = Path(__file__).with_name("compiled_for_cuda.py")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script, capability], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {
        *("norm", "add_norm", "rotate", "gate", "few"),
        *("_store", "_decode", "_add_up"),
    }
