"""config.json of a causal language model, as transformers writes it, reduced to what decides memory.

Older models have other names for the same fields (`n_layer`, `n_embd`). Multimodal models have the language model's
part under `text_config`. A model whose layers keep something other than keys and values is refused, because its memory
would be a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .model import Attention, Shape
from .parameters import count_parameters

Config = Mapping[str, Any]

EVERY_NTH_FULL = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
"""Model types whose config without `layer_types` means a sliding window in all layers except each n-th."""

ALWAYS_SLIDING = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
"""Model types for which `sliding_window`, if set, holds for every layer."""

FOREIGN_FIELDS = ("mamba", "ssm_", "conv_L", "linear_num_", "lru_")
"""Beginnings of fields that only models with such layers have."""

FOREIGN_STATE = ("mamba", "ssm", "rwkv", "linear", "conv", "recurrent")
"""Parts of names of layers whose state is something other than keys and values."""


def parse_config(config: Config) -> Shape:
    """The shape that a config.json describes. Raises ConfigError."""
    text = config.get("text_config")
    inner: Config = {**config, **text} if isinstance(text, Mapping) else config
    foreign = next((field for field in inner if field.startswith(FOREIGN_FIELDS)), None)
    if foreign is not None:
        raise ConfigError(
            foreign, "a model with this field keeps something else than keys and values in some layers"
        )
    hidden = _number(inner, "hidden_size", "n_embd", "d_model")
    heads = _number(inner, "num_attention_heads", "n_head", "n_heads")
    layers = _number(inner, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    quantization = config.get("quantization_config") or inner.get("quantization_config")
    parameters, active = count_parameters(inner, hidden, layers, heads, kv_heads(inner, heads))
    return Shape(
        architecture=_architecture(config),
        attention=_attention(inner, hidden, heads, layers),
        heads=heads,
        hidden=hidden,
        intermediate=_optional(inner, "intermediate_size", "n_inner", "ffn_dim", "d_ff") or 4 * hidden,
        vocabulary=_number(inner, "vocab_size"),
        context=_optional(inner, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        dtype=_dtype(inner),
        quantization=_quantization(quantization),
        parameters=parameters,
        active_parameters=active,
    )


def _attention(config: Config, hidden: int, heads: int, layers: int) -> tuple[Attention, ...]:
    """Layers by what they keep: keys and values of a token, or a latent of both (multi-head latent attention)."""
    latent = _optional(config, "kv_lora_rank")
    if latent is not None:
        rope, nope = (_optional(config, f"qk_{part}_head_dim") or 0 for part in ("rope", "nope"))
        expanded = heads * (nope + rope + (_optional(config, "v_head_dim") or nope))
        return (Attention(layers, latent + rope, 1, None, expanded),)
    key_heads = kv_heads(config, heads)
    head_dim = _optional(config, "head_dim") or hidden // heads
    windowed = _windowed_layers(config, layers)
    window = _optional(config, "sliding_window") if windowed else None
    width = 2 * key_heads * head_dim
    groups = (
        Attention(layers - windowed, width, key_heads, None),
        Attention(windowed, width, key_heads, window),
    )
    return tuple(group for group in groups if group.layers)


def kv_heads(config: Config, heads: int) -> int:
    """The number of key heads. Multi-query models have one, even if a field says otherwise (Falcon). Grouped-query
    models name the number. Otherwise each query head has its own."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    return _optional(config, "num_key_value_heads", "num_kv_heads", "n_head_kv") or heads


def _windowed_layers(config: Config, layers: int) -> int:
    """How many layers look back no further than `sliding_window` tokens."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        for kind in kinds:
            if any(part in str(kind) for part in FOREIGN_STATE):
                raise ConfigError(
                    "layer_types", f"layers of the kind {kind!r} keep something else than keys and values"
                )
        return sum(kind == "sliding_attention" for kind in kinds) if config.get("sliding_window") else 0
    kind = str(config.get("model_type", ""))
    if any(part in kind for part in FOREIGN_STATE):
        raise ConfigError("model_type", f"{kind} keeps something else than keys and values")
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return 0
    if kind in EVERY_NTH_FULL:
        return layers - layers // (_optional(config, "sliding_window_pattern") or EVERY_NTH_FULL[kind])
    return layers if kind in ALWAYS_SLIDING else 0


def _architecture(config: Config) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(config.get("model_type", "unknown"))


def _dtype(config: Config) -> str:
    found = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    return found if found in ("float32", "float16", "bfloat16", "float64") else "bfloat16"


def _quantization(found: Any) -> str | None:
    if not isinstance(found, Mapping):
        return None
    method, bits = str(found.get("quant_method", "quantized")), found.get("bits") or found.get("w_bit")
    return f"{method} {bits} bits" if bits else method


def _optional(config: Config, *names: str) -> int | None:
    """The first of these fields that holds a positive whole number; None if none does."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _number(config: Config, *names: str) -> int:
    found = _optional(config, *names)
    if found is None:
        raise ConfigError(names[0], "there is no positive whole number; the formulas need it")
    return found
