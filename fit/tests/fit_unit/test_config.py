"""docs/concepts/sizing.md: a token's bytes and the parameters follow from config.json; a model with another kind of state is refused."""

from __future__ import annotations

import pytest

from llmendpoint_fit.core.config import parse_config
from llmendpoint_fit.core.memory import Load, kv_sequence_bytes, kv_token_bytes
from llmendpoint_fit.core.model import estimated, model_as_json, model_from_json
from llmendpoint_fit.errors import ConfigError

from .configs import (
    DEEPSEEK_V3,
    FALCON_7B,
    GEMMA3_27B,
    GPT2,
    LLAMA_8B,
    LLAMA_70B,
    MISTRAL_7B,
    MIXTRAL,
    QWEN3_8B,
    Json,
)

FREES = Load(frees_windows=True)


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (LLAMA_8B, 8.03, 8.03),
        (LLAMA_70B, 70.6, 70.6),
        (QWEN3_8B, 8.19, 8.19),
        (MIXTRAL, 46.7, 12.9),
        (DEEPSEEK_V3, 671, 37.5),
    ],
)
def test_parameters_are_those_that_the_makers_publish(config: Json, billions: float, active: float) -> None:
    shape = parse_config(config)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA_8B, 2 * 32 * 8 * 128 * 2),
        (QWEN3_8B, 2 * 36 * 8 * 128 * 2),
        (FALCON_7B, 2 * 32 * 1 * 64 * 2),
        (DEEPSEEK_V3, 61 * 128 * (128 + 64 + 128) * 2),
        (GPT2, 2 * 12 * 12 * 64 * 4),
    ],
)
def test_a_token_keeps_the_keys_and_values_of_all_layers(config: Json, expected: int) -> None:
    assert kv_token_bytes(estimated(parse_config(config)), Load()) == expected


def test_an_engine_that_keeps_latents_keeps_them_whole_on_each_accelerator() -> None:
    model, keeps = estimated(parse_config(DEEPSEEK_V3)), Load(keeps_latents=True)
    assert kv_token_bytes(model, keeps) == kv_token_bytes(model, keeps, 8) == 61 * (512 + 64) * 2
    assert kv_token_bytes(model, Load(), 8) * 8 == kv_token_bytes(model, Load())


def test_a_window_bounds_what_a_long_sequence_keeps_where_the_engine_frees_it() -> None:
    model = estimated(parse_config(MISTRAL_7B))
    assert kv_sequence_bytes(model, FREES, 32768) == kv_sequence_bytes(model, FREES, 4096)
    assert kv_sequence_bytes(model, Load(), 32768) == 8 * kv_sequence_bytes(model, Load(), 4096)


def test_gemma_looks_back_without_limit_in_each_sixth_layer() -> None:
    groups = {group.window: group.layers for group in parse_config(GEMMA3_27B).attention}
    assert groups == {None: 10, 1024: 52}


def test_a_window_that_is_switched_off_is_none() -> None:
    config = QWEN3_8B | {"sliding_window": 4096}
    assert [group.window for group in parse_config(config).attention] == [None]


def test_layers_that_the_config_lists_are_counted() -> None:
    config = QWEN3_8B | {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18}
    assert {g.window: g.layers for g in parse_config(config).attention} == {None: 18, 128: 18}


def test_a_model_with_another_state_is_refused_with_the_field() -> None:
    with pytest.raises(ConfigError, match=r"layer_types.*linear_attention"):
        parse_config(QWEN3_8B | {"layer_types": ["linear_attention", "full_attention"] * 18})
    with pytest.raises(ConfigError, match=r"model_type.*mamba2"):
        parse_config({**LLAMA_8B, "model_type": "mamba2"})


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        parse_config({k: v for k, v in LLAMA_8B.items() if k != "num_hidden_layers"})


@pytest.mark.parametrize("config", [LLAMA_8B, MISTRAL_7B, GEMMA3_27B, DEEPSEEK_V3, GPT2])
def test_a_model_comes_back_from_its_json(config: Json) -> None:
    model = estimated(parse_config(config))
    assert model_from_json(model_as_json(model)) == model


@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen3_moe", "gemma2", "gpt2", "phi3", "falcon", "gpt_oss", "deepseek_v3", "cohere2", "opt"])  # fmt: skip
def test_parameters_are_those_of_transformers_own_models(kind: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    real = sum(parameter.numel() for parameter in model.parameters())
    assert parse_config(config.to_dict()).parameters == pytest.approx(
        real, rel=0.015
    )  # tables of positions are left out


@pytest.mark.parametrize("kind", ["mamba2", "jamba", "bamba", "zamba2", "lfm2", "qwen3_next", "recurrent_gemma", "minimax", "rwkv"])  # fmt: skip
def test_architectures_with_another_state_are_refused(kind: str) -> None:
    from transformers import AutoConfig

    with pytest.raises(ConfigError):
        parse_config(AutoConfig.for_model(kind).to_dict())
