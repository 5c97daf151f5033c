"""docs/concepts/sizing.md: the verdicts, the formulas and the table of accelerators; each proposed change makes the model fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_fit.core.accelerators import ACCELERATORS, BY_NAME, recognise, slice_memory
from llmendpoint_fit.core.config import parse_config
from llmendpoint_fit.core.cost import breakeven, decode_limit, per_thousand
from llmendpoint_fit.core.engines import parse_load, reads
from llmendpoint_fit.core.memory import (
    Load,
    adapter_bytes,
    kv_sequence_bytes,
    kv_token_bytes,
    overhead_bytes,
    weights_bytes,
)
from llmendpoint_fit.core.model import Attention, Model, Shape, estimated
from llmendpoint_fit.core.text import change_text, fit_text
from llmendpoint_fit.core.verdict import (
    Outcome,
    Question,
    changed,
    evaluate,
    loads,
    quantized,
    what_would_fit,
)

from .configs import LLAMA_8B, LLAMA_70B, QWEN3_8B

EIGHT, SEVENTY, QWEN = (estimated(parse_config(config)) for config in (LLAMA_8B, LLAMA_70B, QWEN3_8B))


def ask(model: Model, name: str, accelerators: int = 1, **load: int) -> Question:
    return Question(model, Load(**load), BY_NAME[name].memory, accelerators)  # type: ignore[arg-type]  # numbers only


@pytest.mark.parametrize(
    ("question", "outcome"),
    [
        (ask(EIGHT, "l4", max_model_len=8192, max_num_seqs=4), Outcome.FITS),
        (ask(EIGHT, "l4", max_model_len=8192, max_num_seqs=64), Outcome.FEWER_SEQUENCES),
        (ask(EIGHT, "l4"), Outcome.SHORTER_CONTEXT),
        (ask(EIGHT, "l4", max_model_len=131072), Outcome.CONTEXT_TOO_LONG),
        (ask(EIGHT, "l4", max_model_len=8192, kv_cache=10 * 2**30), Outcome.CACHE_TOO_LARGE),
        (ask(EIGHT, "l4", max_model_len=8192, kv_cache=2**29), Outcome.CONTEXT_TOO_LONG),
        (ask(EIGHT, "t4", max_model_len=8192), Outcome.WEIGHTS_TOO_LARGE),
        (ask(SEVENTY, "h100-80gb", max_model_len=8192), Outcome.WEIGHTS_TOO_LARGE),
        (ask(SEVENTY, "h100-80gb", 4, max_model_len=8192), Outcome.FEWER_SEQUENCES),
        (ask(SEVENTY, "h200", 2, max_model_len=8192, max_num_seqs=16), Outcome.FITS),
    ],
)
def test_verdicts_of_models_that_people_run(question: Question, outcome: Outcome) -> None:
    assert evaluate(question).outcome is outcome


@pytest.mark.parametrize(
    ("quantization", "accelerators", "divisible"),
    [
        (None, 2, True),
        (None, 8, True),
        (None, 3, False),
        (None, 16, False),
        ("fp8", 2, False),
        ("fp8", 1, True),
    ],
)
def test_the_bundled_engine_divides_whole_key_heads_of_weights_that_are_not_quantized(
    quantization: str | None, accelerators: int, divisible: bool
) -> None:
    """Eight key heads. Other engines keep some of them twice."""
    model = replace(EIGHT, shape=replace(EIGHT.shape, quantization=quantization))
    question = ask(model, "h200", accelerators, divides_evenly=True)
    assert (evaluate(question).outcome is Outcome.NOT_DIVISIBLE) is not divisible
    assert evaluate(ask(model, "h200", accelerators)).outcome is not Outcome.NOT_DIVISIBLE


@pytest.mark.parametrize(("architecture", "share"), [("LlamaForCausalLM", 2), ("Phi3ForCausalLM", 1)])
def test_each_accelerator_has_its_share_of_keys_and_values_or_all_of_them(
    architecture: str, share: int
) -> None:
    model = replace(EIGHT, shape=replace(EIGHT.shape, architecture=architecture))
    load = ask(model, "h200", divides_evenly=True).load
    assert kv_token_bytes(model, load, 2) * share == kv_token_bytes(model, load)


def test_the_proposals_for_70b_on_one_h100() -> None:
    question = ask(SEVENTY, "h100-80gb", max_model_len=8192, max_num_seqs=16)
    texts = [change_text(change) for change in what_would_fit(question, "nvidia.com/gpu")]
    assert texts == [
        "resources.accelerator.count 4 with an engine that divides the model (tensor parallelism)",
        "a checkpoint quantized to 4 bits",
        "NVIDIA B200 (192.3 GB)",
    ]


def test_a_context_that_is_too_long_is_shortened_to_one_that_fits() -> None:
    question = ask(EIGHT, "l4", max_model_len=131072)
    change = what_would_fit(question)[0]
    assert change.max_model_len is not None
    assert 16_384 < change.max_model_len < 65_536
    assert evaluate(changed(question, change)).outcome.serves


def test_an_engine_that_does_not_divide_a_model_is_not_told_to() -> None:
    question = replace(ask(SEVENTY, "h100-80gb", max_model_len=8192), splits=False)
    assert all(change.accelerators is None for change in what_would_fit(question, "nvidia.com/gpu"))


def test_an_engine_that_does_not_load_a_quantization_is_offered_none_and_judged_by_it() -> None:
    question = replace(ask(SEVENTY, "h100-80gb", max_model_len=8192), reads=frozenset({"awq 4 bits"}))
    assert all(change.weight_bits is None for change in what_would_fit(question, "nvidia.com/gpu"))
    packed = replace(question, model=quantized(EIGHT, 4))
    assert evaluate(replace(packed, reads=None)).outcome.serves
    fit = evaluate(packed)
    assert (fit.outcome, fit.outcome.serves, what_would_fit(packed, "nvidia.com/gpu")) == (
        Outcome.QUANTIZED,
        False,
        (),
    )
    assert "take another runtime, a checkpoint of GPTQ, AWQ" in fit_text(fit, 16)


@pytest.mark.parametrize(("kept", "share"), [("auto", 1), ("int8", 2), ("fp8", 2)])
def test_a_cache_of_eight_bits_holds_twice_the_tokens(kept: str, share: int) -> None:
    whole = kv_token_bytes(EIGHT, parse_load({}))
    assert kv_token_bytes(EIGHT, parse_load({"engine": {"kvCacheDtype": kept}})) * share == whole


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4}


@pytest.mark.parametrize(
    ("method", "read"),
    [
        (AWQ, True),
        (GPTQ, True),
        (GPTQ | {"bits": 8}, True),
        (GPTQ | {"bits": 3}, False),
        ({"quant_method": "fp8"}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, True),
        ({"quant_method": "aqlm"}, False),
    ],
)
def test_the_bundled_engine_holds_a_quantized_checkpoint_in_sixteen_bits_and_others_as_it_is_stored(
    method: dict[str, Any], read: bool
) -> None:
    shape = parse_config(LLAMA_8B | {"quantization_config": method})
    model = Model(shape, {"I32": 4_000_000_000, "F16": 1_700_000_000})
    ours, theirs = ({}, {"runtime": {"name": "vllm"}})
    assert loads(model, reads(ours)) is read
    assert loads(model, reads(theirs))
    assert weights_bytes(model, parse_load(ours)) == 2 * shape.parameters
    assert weights_bytes(model, parse_load(theirs)) == 5_700_000_000


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({}, Outcome.FITS),
        ({"engine": {"dtype": "float32"}}, Outcome.WEIGHTS_TOO_LARGE),
        ({"runtime": {"name": "other"}}, Outcome.WEIGHTS_TOO_LARGE),
    ],
)
def test_our_engine_holds_a_checkpoint_of_32_bits_in_16(spec: dict[str, Any], outcome: Outcome) -> None:
    model = estimated(parse_config(LLAMA_8B | {"torch_dtype": "float32"}))
    load = replace(parse_load(spec), max_model_len=8192, max_num_seqs=4)
    assert evaluate(Question(model, load, BY_NAME["l4"].memory)).outcome is outcome


def test_the_sentence_holds_the_figures() -> None:
    question = ask(EIGHT, "l4", max_model_len=8192, max_num_seqs=64)
    assert fit_text(evaluate(question), 64) == (
        "weights 16.1 GB + overhead 3.2 GB of 24.2 GB; 4.9 GB are left for keys and values: 4 sequences of 8,192 tokens "
        "at once, more of them only when they are shorter (asked for 64)"
    )


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"), ("NVIDIA-A100-SXM4-40GB", "a100-40gb"), ("NVIDIA-A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA-H100-80GB-HBM3", "h100-80gb"), ("NVIDIA-H100-NVL", "h100-nvl"), ("NVIDIA-H200", "h200"),
        ("NVIDIA-B200", "b200"), ("NVIDIA-L4", "l4"), ("NVIDIA-L40S", "l40s"), ("Tesla-T4", "t4"), ("NVIDIA-A10", "a10"),
        ("NVIDIA-A10G", "a10g"), ("Tesla-V100-SXM2-16GB", "v100-16gb"), ("Tesla-V100-SXM2-32GB", "v100-32gb"),
        ("NVIDIA-GeForce-RTX-4090", "rtx-4090"), ("NVIDIA-RTX-6000-Ada-Generation", "rtx-6000-ada"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"), ("AMD_Instinct_MI250X_/_MI250", "mi250"), ("nvidia-l4", "l4"),
        ("nvidia-h100-80gb", "h100-80gb"), ("gaudi3", "gaudi3"), ("H200", "h200"),
    ],
)  # fmt: skip
def test_products_are_recognised_as_node_labels_name_them(product: str, name: str) -> None:
    found = recognise(product)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "product",
    ["", "NVIDIA-A100", "Quadro-P400", "gpu", "NVIDIA-A100-SXM4-60GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"],
)
def test_a_product_that_is_not_known_or_could_be_two_is_not_guessed(product: str) -> None:
    assert recognise(product) is None


def test_every_name_in_the_table_is_recognised_as_itself() -> None:
    assert all(recognise(a.name) is a for a in ACCELERATORS)


def test_a_slice_tells_its_memory_by_its_resource_name() -> None:
    assert slice_memory("nvidia.com/mig-3g.40gb") == 40 * 10**9
    assert slice_memory("nvidia.com/gpu") is None


def test_cost_of_tokens_and_the_breakeven_against_an_api() -> None:
    assert per_thousand(3.6, 100) == pytest.approx(0.01)
    assert breakeven(3.6, 10) == pytest.approx(100)
    assert breakeven(3.6, per_thousand(3.6, 250) * 1000) == pytest.approx(250)


def test_one_sequence_of_8b_on_an_l4_is_bound_by_reading_the_weights() -> None:
    limit = decode_limit(EIGHT, Load(), BY_NAME["l4"], 1, 1, 1000)
    assert limit == pytest.approx(300e9 / (16.06e9 + 131072 * 1000), rel=0.01)


# Properties, over models of any shape.

counts = st.sampled_from((1, 2, 4, 8))


@st.composite
def models(draw: st.DrawFn) -> Model:
    kv_heads, per = draw(st.sampled_from((1, 2, 4, 8, 16))), draw(st.sampled_from((1, 2, 4)))
    head_dim, layers = draw(st.sampled_from((32, 64, 128))), draw(st.integers(1, 96))
    window = draw(st.none() | st.integers(16, 8192))
    windowed = draw(st.integers(0, layers)) if window else 0
    width = 2 * kv_heads * head_dim
    groups = (Attention(layers - windowed, width, kv_heads), Attention(windowed, width, kv_heads, window))
    heads = kv_heads * per
    shape = Shape(
        "Any", tuple(g for g in groups if g.layers), heads, heads * head_dim, 4 * heads * head_dim,
        draw(st.integers(256, 300_000)), draw(st.none() | st.integers(512, 1_000_000)), "bfloat16",
    )  # fmt: skip
    weights = draw(
        st.dictionaries(
            st.sampled_from(("BF16", "F32", "F16", "U8", "I32")), st.integers(1, 10**12), min_size=1
        )
    )
    return Model(shape, weights)


made_loads = st.builds(
    Load,
    max_model_len=st.none() | st.integers(1, 1_000_000),
    max_num_seqs=st.none() | st.integers(1, 4096),
    dtype=st.none() | st.sampled_from(("bfloat16", "float16", "float32")),
    kv_element_bytes=st.none() | st.sampled_from((1, 2)),
    kv_cache=st.none() | st.integers(1, 10**12),
    frees_windows=st.booleans(),
    keeps_latents=st.booleans(),
    dequantizes=st.booleans(),
)
questions = st.builds(
    Question,
    models(),
    made_loads,
    st.integers(10**8, 5 * 10**11),
    counts,
    st.booleans(),
    st.none() | st.just(frozenset({"awq 4 bits"})),
    st.none() | models(),
)


@settings(max_examples=60, deadline=None)
@given(questions)
def test_what_is_proposed_fits(question: Question) -> None:
    for change in what_would_fit(question, "nvidia.com/gpu"):
        assert evaluate(changed(question, change)).outcome.serves
        assert change_text(change)


@settings(max_examples=60, deadline=None)
@given(questions)
def test_what_fits_does_not_exceed_the_memory(question: Question) -> None:
    fit = evaluate(question)
    if fit.outcome.serves:
        assert fit.weights + fit.overhead + fit.draft + fit.cache <= fit.memory
        one = kv_sequence_bytes(question.model, question.load, fit.longest, question.accelerators)
        assert one <= fit.cache
    if fit.outcome in (Outcome.FITS, Outcome.FEWER_SEQUENCES):
        whole = kv_sequence_bytes(question.model, question.load, fit.context, question.accelerators)
        assert fit.sequences >= 1
        assert fit.sequences * whole <= fit.cache
    assert fit_text(fit, question.load.sequences)


@settings(max_examples=60, deadline=None)
@given(questions, st.integers(1, 10**11))
def test_more_memory_never_makes_it_worse(question: Question, more: int) -> None:
    before, after = evaluate(question), evaluate(replace(question, memory=question.memory + more))
    assert after.longest >= before.longest
    assert after.sequences >= before.sequences
    assert after.outcome.serves or not before.outcome.serves


@settings(max_examples=60, deadline=None)
@given(questions)
def test_twice_the_accelerators_take_no_more_of_each(question: Question) -> None:
    twice = question.accelerators * 2
    model, load = question.model, question.load
    assert kv_token_bytes(model, load, twice) <= kv_token_bytes(model, load, question.accelerators)
    assert overhead_bytes(model, load, twice) <= overhead_bytes(model, load, question.accelerators)
    assert 2 * kv_token_bytes(model, load, twice) >= kv_token_bytes(model, load, question.accelerators)


@settings(max_examples=60, deadline=None)
@given(models(), made_loads, st.integers(0, 100_000), st.integers(0, 100_000))
def test_keys_and_values_grow_with_the_tokens_and_windows_only_save(
    model: Model, load: Load, some: int, more: int
) -> None:
    assert kv_sequence_bytes(model, load, some) <= kv_sequence_bytes(model, load, some + more)
    freeing, keeping = replace(load, frees_windows=True), replace(load, frees_windows=False)
    assert kv_sequence_bytes(model, freeing, some) <= kv_sequence_bytes(model, keeping, some)
    assert kv_sequence_bytes(model, keeping, some) == some * kv_token_bytes(model, keeping)


@settings(max_examples=60, deadline=None)
@given(models())
def test_fewer_bits_are_never_more_bytes(model: Model) -> None:
    eight, four = quantized(model, 8), quantized(model, 4)
    assert four.stored <= eight.stored
    assert weights_bytes(eight, Load()) <= weights_bytes(model, Load(dtype="bfloat16")) + 2


def test_the_documented_table_is_the_one_that_is_used() -> None:
    text = (Path(__file__).parents[3] / "docs/concepts/sizing.md").read_text()
    for a in ACCELERATORS:
        price = "" if a.hourly is None else a.hourly
        assert f"| {a.name} | {a.memory_mib:,} | {a.bandwidth:,.0f} | {a.tflops:,.0f} | {price} |" in text


def test_adapters_take_their_places_when_the_spec_names_any() -> None:
    """A LoRA of rank 16 on all linear layers of Llama 3 8B has 41,943,040 parameters."""
    spec = {"engine": {"maxAdapters": 3}, "adapters": [{"name": "sql", "source": "hf://acme/sql"}]}
    load = parse_load(spec)
    assert parse_load({**spec, "runtime": {"name": "vllm"}}).adapters == 3
    assert adapter_bytes(EIGHT, load) == 4 * 2 * 41_943_040
    assert adapter_bytes(EIGHT, load, 2) == 2 * 2 * 41_943_040
    assert overhead_bytes(EIGHT, load) - overhead_bytes(EIGHT, Load(dtype="bfloat16", dequantizes=True)) == (
        adapter_bytes(EIGHT, load)
    )
    assert adapter_bytes(EIGHT, parse_load({"engine": {"maxAdapters": 4}})) == 0
