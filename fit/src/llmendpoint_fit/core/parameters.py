"""How many parameters a config describes: for models without a weight file at hand, and for the share of a mixture of
experts that one token uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNGATED = frozenset(
    {"gpt2", "opt", "gpt_neox", "gptj", "bloom", "falcon", "phi", "starcoder2", "gpt_bigcode", "mpt"}
)
"""Model types whose feed-forward has two matrices; all others have three (gate, up, down)."""


def count_parameters(
    config: Mapping[str, Any], hidden: int, layers: int, heads: int, kv_heads: int
) -> tuple[int, int]:
    """All parameters, and those that one token uses. Norms and biases (below 0.1 %) are left out."""
    vocabulary = _int(config, "vocab_size", 0)
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    attention = layers * _attention(config, hidden, heads, kv_heads)
    dense, experts, used = _feed_forward(config, hidden, layers)
    rest = embeddings + attention + dense
    return rest + experts, rest + used


def _attention(config: Mapping[str, Any], hidden: int, heads: int, kv_heads: int) -> int:
    latent = _int(config, "kv_lora_rank", 0)
    if latent:
        rope, nope = _int(config, "qk_rope_head_dim", 0), _int(config, "qk_nope_head_dim", 0)
        value, query = _int(config, "v_head_dim", nope), _int(config, "q_lora_rank", 0)
        queries = (hidden + heads * (nope + rope)) * query if query else hidden * heads * (nope + rope)
        return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    head_dim = _int(config, "head_dim", hidden // heads)
    return 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim


def _feed_forward(config: Mapping[str, Any], hidden: int, layers: int) -> tuple[int, int, int]:
    """Dense parameters, those of all routed experts, and those of the experts that one token uses."""
    matrices = 2 if config.get("model_type") in UNGATED else 3
    wide = _int(config, "intermediate_size", _int(config, "n_inner", 4 * hidden))
    number = _int(
        config, "num_local_experts", _int(config, "num_experts", _int(config, "n_routed_experts", 0))
    )
    if not number:
        return layers * matrices * hidden * wide, 0, 0
    narrow = _int(config, "moe_intermediate_size", wide)
    first = min(_int(config, "first_k_dense_replace", 0), layers)
    shared = _int(config, "n_shared_experts", 0) * narrow + _int(config, "shared_expert_intermediate_size", 0)
    sparse = layers - first
    one = matrices * hidden * narrow
    dense = first * matrices * hidden * wide + sparse * (matrices * hidden * shared + hidden * number)
    return dense, sparse * number * one, sparse * min(_int(config, "num_experts_per_tok", 1), number) * one


def _int(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
