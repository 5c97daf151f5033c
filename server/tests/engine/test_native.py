"""docs/concepts/architecture.md: the CPU kernels compute what torch's operators compute, on every kind of processor that they are compiled for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import gate, native, surgery
from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.in_place import InPlace
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.formats.groups import Groups
from llmendpoint_server.engine.fused import FusedAttention, FusedLayers, FusedMlp, FusedNorm
from llmendpoint_server.engine.fusing import Fusing, fused_mlp, fused_norm
from llmendpoint_server.engine.linear import NativeLinear
from llmendpoint_server.engine.machine import cpu_flags
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.native_operators import NativeOperators
from llmendpoint_server.engine.quantizing import Quantization, in_eight_bits, in_four_bits, quantize
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import Configure

llmendpoint_native = pytest.importorskip("llmendpoint_native", reason="compiled with g++ on x86_64 only")
CPU = torch.device("cpu")
VARIANTS = [name for name, needs in llmendpoint_native.VARIANTS.items() if needs <= cpu_flags()]
CASES = [
    (name, dtype)
    for name in VARIANTS
    for dtype in (torch.float32, torch.bfloat16)
    if dtype is torch.float32 or name in ("amx", "avx512_bf16")
]
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}


def kernels(variant: str) -> Kernels:
    name, functions = llmendpoint_native.load(cpu_flags(), (variant,))
    return Kernels(name, functions, functions.LANES, functions.INPUTS, bool(functions.BF16))


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())


def with_zeros(weight: torch.Tensor) -> Groups:
    """As checkpoints have them: groups of another size, with zeros."""
    groups = in_four_bits(weight)
    count = weight.shape[1] // 16
    zero = torch.randint(-8, 8, (len(weight), count)).float()
    return Groups(groups.values, torch.rand(len(weight), count) + 0.5, zero, 4)


@pytest.mark.parametrize(("variant", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("quantization", [None, in_eight_bits, in_four_bits, with_zeros])
def test_a_linear_layer_equals_torchs_for_any_number_of_rows_and_outputs(
    variant: str, dtype: torch.dtype, quantization: Callable[[torch.Tensor], Groups] | None
) -> None:
    torch.manual_seed(0)
    for outputs, inputs in ((96, 64), (100, 32), (9, 320), (40, 1088)):
        weight, bias = torch.randn(outputs, inputs).to(dtype), torch.randn(outputs).to(dtype)
        groups = quantization(weight) if quantization else None
        layer = NativeLinear(kernels(variant), weight, bias, groups)
        weight = groups.dense().to(dtype) if groups else weight
        for rows in (1, 2, 3, 7, 12, 13, 16, 17, 31, 32, 33, 70, 129, 165):
            x = torch.randn(rows, inputs).to(dtype)
            expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
            assert apart(layer(x), expected) < TOLERANCE[dtype], (outputs, inputs, rows)


@pytest.mark.parametrize(("variant", "dtype"), CASES, ids=str)
def test_a_row_has_the_same_result_in_four_bits_whatever_rows_are_beside_it(
    variant: str, dtype: torch.dtype
) -> None:
    if variant == "amx":
        pytest.skip("tiles add in another order than registers")
    torch.manual_seed(0)
    weight, x = torch.randn(96, 320).to(dtype), torch.randn(40, 320).to(dtype)
    layer = NativeLinear(kernels(variant), weight, None, with_zeros(weight))
    whole = layer(x)
    for rows in (1, 2, 3, 4, 5, 12, 13):
        assert torch.equal(layer(x[:rows]), whole[:rows])


def test_weights_that_bfloat16_holds_exactly_are_kept_in_it_and_others_are_not() -> None:
    torch.manual_seed(0)
    exact = torch.randn(32, 64).bfloat16().float()
    half, whole = (NativeLinear(kernels("avx2"), w, None) for w in (exact, torch.randn(32, 64)))
    assert half._weight.dtype is torch.bfloat16
    assert whole._weight.dtype is torch.float32


def test_a_linear_layer_refuses_what_does_not_fit_it() -> None:
    layer = NativeLinear(kernels("avx2"), torch.randn(32, 64), None)
    with pytest.raises(ValueError, match="a linear layer of 64"):
        layer(torch.randn(3, 32))
    with pytest.raises(ValueError, match="a linear layer of 64"):
        layer(torch.randn(3, 64).bfloat16())


LENGTHS = (5, 1, 300, 40, 17, 160)
SHAPES = [  # heads, heads of keys, dimensions of keys and values, rules
    (12, 12, 64, 64, Rules(0.2, None, None, None)),
    (4, 2, 16, 16, Rules(0.3, 8, None, None)),
    (8, 1, 128, 64, Rules(0.2, None, 30.0, torch.linspace(-1, 2, 8))),
    (6, 2, 32, 48, Rules(0.3, 20, None, torch.linspace(-1, 2, 6))),
    (14, 2, 64, 64, Rules(0.2, None, None, None)),
]


def chunks(tables: list[list[int]], phase: int) -> Batch:
    """Prompts; then a token of each; then eleven of each, as chunks and drafts are."""
    rows = []
    for n, (length, table) in enumerate(zip(LENGTHS, tables, strict=True)):
        start, count = ((0, length), (length, 1), (length + 1, 11))[phase]
        tokens = [0] * (start + count)
        sequence = Sequence(Request(str(n), tuple(tokens), SamplingParams(1)), 0, tokens, [], table=table)
        rows.append(Scheduled(sequence, start, count))
    return Batch(tuple(rows), 0.0)


@pytest.mark.parametrize(("variant", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape[:4])))
def test_attention_in_place_equals_gathered_whatever_former_owners_left_in_the_pages(
    variant: str, dtype: torch.dtype, shape: tuple[int, int, int, int, Rules]
) -> None:
    heads, kv_heads, key_dim, value_dim, rules = shape
    torch.manual_seed(0)
    pool = random.Random(1).sample(range(64), 64)
    tables = [[pool.pop() for _ in range((length + 20) // 16 + 1)] for length in LENGTHS]
    ours, theirs = InPlace(kernels(variant), 64, dtype), Gathered(64, 16, CPU, dtype)
    one = [torch.zeros(1, kv_heads, 1, dim, dtype=dtype) for dim in (key_dim, value_dim)]
    for backend in (ours, theirs):
        layer = backend.cache.layer(0, *one, rules.sliding_window)
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    for phase in range(3):
        batch = chunks(tables, phase)
        states = [
            torch.randn(1, batch.tokens, count, dim).to(dtype).transpose(1, 2)
            for count, dim in ((heads, key_dim), (kv_heads, key_dim), (kv_heads, value_dim))
        ]
        found, expected = (
            backend.attend(backend.prepare(batch), 0, *states, rules) for backend in (ours, theirs)
        )
        assert apart(found, expected) < TOLERANCE[dtype], phase


def test_the_fastest_variant_that_the_processor_has_is_taken() -> None:
    everything = frozenset().union(*llmendpoint_native.VARIANTS.values())
    assert llmendpoint_native.load(llmendpoint_native.VARIANTS["avx2"])[0] == "avx2"
    if everything <= cpu_flags():
        assert llmendpoint_native.load(everything)[0] == "amx"
        assert llmendpoint_native.load(everything - {"amx_tile"})[0] == "avx512_bf16"
    with pytest.raises(llmendpoint_native.Unavailable, match="the processor has none of amx"):
        llmendpoint_native.load(frozenset({"sse4_2"}))


def test_a_variant_that_does_not_load_leaves_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_avx2(name: str) -> str:
        if not name.endswith("_avx2"):
            raise ImportError("built for another system")
        return name

    monkeypatch.setattr(llmendpoint_native.importlib, "import_module", only_avx2)
    everything = frozenset().union(*llmendpoint_native.VARIANTS.values())
    assert llmendpoint_native.load(everything)[0] == "avx2"
    with pytest.raises(llmendpoint_native.Unavailable, match="avx512: built for another system"):
        llmendpoint_native.load(everything, ("avx512",))


def configure(folder: Path, **settings: object) -> Configure:
    return Configure(**{"model_path": str(folder), "device": "cpu", "dtype": "float32", **settings})  # type: ignore[arg-type]  # names are checked at run time


def modules(model: object, kind: type) -> int:
    return sum(isinstance(module, kind) for module in model.modules())  # type: ignore[attr-defined]  # a Llama


@pytest.mark.parametrize(
    ("shape", "runs", "attentions", "mlps", "norms"),
    [
        ("llama", 1, 4, 4, 9),
        ("qwen3", 1, 4, 4, 9),
        ("gemma3_text", 0, 7, 0, 29),
        ("mixtral", 0, 4, 0, 9),
        ("smollm3", 0, 2, 4, 9),
        ("mellum", 0, 4, 4, 9),
        ("gpt2", 0, 0, 0, 0),
    ],
)
def test_what_a_family_shares_with_llama_is_fused_and_what_it_has_of_its_own_is_kept(
    shape: str, runs: int, attentions: int, mlps: int, norms: int, model_folder: Callable[[str], Path]
) -> None:
    model = load(configure(model_folder(shape)))[0].model
    assert modules(model, FusedLayers) == runs
    assert modules(model, FusedAttention) == attentions
    assert modules(model, FusedMlp) == mlps
    assert modules(model, FusedNorm) == norms


def test_the_server_runs_without_the_kernels_and_refuses_what_needs_them(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "llmendpoint_native", None)
    assert isinstance(load(configure(model_folder("llama")))[0].backend, Gathered)
    with pytest.raises(BadConfiguration, match="--quantization is int8, which needs the CPU kernels"):
        load(configure(model_folder("llama"), quantization="int8"))


@pytest.mark.parametrize(("quantization", "kept"), [("int8", torch.int8), ("int4", torch.uint8)])
def test_a_quantized_model_is_served_in_place_and_its_head_has_eight_bits(
    quantization: Quantization, kept: torch.dtype, model_folder: Callable[[str], Path]
) -> None:
    runner, info = load(configure(model_folder("llama"), quantization=quantization))
    assert isinstance(runner.backend, InPlace)
    layers = [module for module in runner.model.modules() if isinstance(module, NativeLinear)]
    assert {layer._weight.dtype for layer in layers[:-1]} == {kept}
    assert layers[-1] is runner.model.lm_head  # type: ignore[attr-defined]  # a Llama
    assert layers[-1]._weight.dtype is torch.int8
    assert info.quantization == quantization
    runner.check()


class MeanNorm(torch.nn.Module):
    """Cohere's: it subtracts the mean, and has no bias."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim, dtype=torch.bfloat16))
        self.variance_epsilon = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        x = x - x.mean(-1, keepdim=True)
        return (self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))).bfloat16()


@pytest.mark.skipif("amx" not in VARIANTS and "avx512_bf16" not in VARIANTS, reason="no bf16 arithmetic")
def test_a_norm_that_subtracts_the_mean_is_kept_however_wide_it_is() -> None:
    fusing = Fusing.by(NativeOperators(kernels("avx512_bf16"), torch.bfloat16))
    with torch.inference_mode():
        for dim in (64, 4096, 16384):
            assert fused_norm(MeanNorm(dim), fusing) is None


class LimitedMlp(torch.nn.Module):
    """A gated feed-forward that bounds what lies between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(32, 64, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(64, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up_proj(x).clamp(-7, 7)
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * up)


def test_a_feed_forward_with_a_limit_that_small_inputs_do_not_reach_is_kept() -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        assert fused_mlp(LimitedMlp(), Fusing.by(NativeOperators(kernels("avx2"), torch.float32))) is None


def test_pages_of_another_shape_than_the_layers_are_refused() -> None:
    backend = InPlace(kernels("avx2"), 8, torch.float32)
    batch = Batch(
        (Scheduled(Sequence(Request("a", (0, 0), SamplingParams(1)), 0, [0, 0], [], table=[0]), 0, 2),), 0.0
    )
    rules = Rules(1.0, None, None, None)
    states = [torch.randn(1, heads, 2, 16) for heads in (4, 2, 2)]
    backend.attend(backend.prepare(batch), 0, *states, rules)
    with pytest.raises(ValueError, match="layer 0 has pages of"):
        backend.attend(
            backend.prepare(batch), 0, *[torch.randn(1, heads, 2, 32) for heads in (4, 2, 2)], rules
        )


def test_a_linear_layer_of_no_rows_gives_none() -> None:
    layer = NativeLinear(kernels("avx2"), torch.randn(32, 64), None)
    assert layer(torch.randn(0, 64)).shape == (0, 32)


@pytest.mark.parametrize(("variant", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("quantization", [None, "int8", "int4"])
def test_layers_are_one_call_unless_one_of_them_has_a_step_of_its_own(
    variant: str,
    dtype: torch.dtype,
    quantization: Quantization | None,
    model_folder: Callable[[str], Path],
) -> None:
    """Of its own: a factor of 0.97 on what the third layer adds."""
    kind, found = kernels(variant), []
    for factor in (1.0, 0.97):
        model = AutoModelForCausalLM.from_pretrained(model_folder("granite"), dtype=dtype).eval()
        gate.open_to_pages("granite", model)
        model.model.layers[2].residual_multiplier = factor
        if quantization:
            quantize(model, kind, quantization)
        surgery.fuse(model, NativeOperators(kind, dtype))
        found.append(modules(model, FusedLayers))
        assert modules(model, FusedMlp) == 4
    assert found == [1, 0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_that_memory_does_not_hold_is_an_error_and_not_the_end_of_the_process(variant: str) -> None:
    functions, many = kernels(variant).functions, 1 << 44
    with pytest.raises(MemoryError):
        functions.layers(0, 0, 0, 1, 64, 4, 2, 16, 128, 0, 0, 0, 0, 0, 0, 1, many, 16, 0)
    with pytest.raises(MemoryError):
        functions.linear(0, 0, 0, 0, 0, 16, 0, 0, 0, 100, 64, many, 0)


def test_layers_refuse_pages_of_another_shape_and_states_of_another_type(
    model_folder: Callable[[str], Path],
) -> None:
    runner, _ = load(configure(model_folder("llama")))
    (run,) = (module for module in runner.model.modules() if isinstance(module, FusedLayers))
    backend = InPlace(kernels("avx2"), 8, torch.float32)
    one = Request("a", (0, 0), SamplingParams(1))
    step = backend.prepare(Batch((Scheduled(Sequence(one, 0, [0, 0], [], table=[0]), 0, 2),), 0.0))
    states, turns = torch.randn(1, 2, 64), torch.randn(1, 2, 16)
    with pytest.raises(ValueError, match="layers of 64 in"):
        backend.compute_layers(step, run.table, states.bfloat16(), turns, turns)
    backend.cache.layer(1, torch.zeros(1, 2, 1, 32), torch.zeros(1, 2, 1, 32), None)
    with pytest.raises(ValueError, match="pages of another shape"):
        backend.compute_layers(step, run.table, states, turns, turns)
