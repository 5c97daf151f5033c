"""Tiny models with random weights in the shapes of real families, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 512
_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "narrow": {"head_dim": 12},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7},
    "gemma2": {"head_dim": 16, "sliding_window": 8},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8},
    "mistral": {"sliding_window": 20},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512},
    "falcon": {"num_kv_heads": 4},
    "mamba": {"state_size": 8, "num_hidden_layers": 2},
    "llama4_text": {
        "attention_chunk_size": 8,
        "num_local_experts": 2,
        "head_dim": 16,
        "intermediate_size_mlp": 128,
    },
    "qwen2": {},
    "gemma3n_text": {
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        "intermediate_size": [128] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCAB,
        "laurel_rank": 8,
        "num_kv_shared_layers": 0,
    },
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCAB,
    },
    "phi3": {},
    "cohere2": {"sliding_window": 8},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
    },
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
    "granite": {},
    "olmo2": {},
    "glm4": {"head_dim": 16},
    "smollm3": {"no_rope_layer_interval": 2},
    "mellum": {  # layers with a window turn by other angles
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "mlp_layer_types": ["dense"] * 4,
    },
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "longrope": {
        "original_max_position_embeddings": 32,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
            "short_factor": [1.0] * 8,
            "long_factor": [4.0] * 8,
            "original_max_position_embeddings": 32,
        },
    },
}
_TYPE = {"longrope": "phi3", "narrow": "llama"}


def save(shape: str, folder: Path) -> Path:
    """Writes a model of this shape; weights large enough that greedy tokens differ from step to step."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(_TYPE.get(shape, shape), **{**_BASE, **_SHAPES[shape]})
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.08)
    model.save_pretrained(folder)
    return folder
