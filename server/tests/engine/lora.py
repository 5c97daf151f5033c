"""Adapters that peft itself makes for a tests' model, and what peft computes with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KINDS: tuple[dict[str, Any], ...] = (
    {"r": 8, "target_modules": ALL},
    {"r": 4, "target_modules": ["q_proj", "v_proj"]},
    {"r": 1, "target_modules": ["o_proj"], "lora_alpha": 1},
    {"r": 16, "target_modules": ["gate_proj", "down_proj"], "lora_alpha": 16},
    {"r": 8, "target_modules": ["k_proj"], "lora_alpha": 8, "use_rslora": True},
    {"r": 2, "target_modules": ["up_proj", "q_proj"]},
    {
        "r": 8,
        "target_modules": ["v_proj", "o_proj"],
        "layers_to_transform": [1, 2],
        "layers_pattern": "layers",
    },
    {"r": 4, "target_modules": ["q_proj", "up_proj"], "rank_pattern": {"up_proj": 12}},
)
"""Of different ranks, targets, layers and scales."""


def base(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def save(model_folder: Path, folder: Path, seed: int = 0, **config: Any) -> Path:
    """An adapter with random weights, as peft writes it; what it adds is about as large as what the layers give."""
    torch.manual_seed(seed)
    options = {"lora_alpha": 32, "init_lora_weights": False, "task_type": "CAUSAL_LM", **config}
    get_peft_model(base(model_folder), LoraConfig(**options)).save_pretrained(str(folder))
    return folder


def logits(
    model_folder: Path, adapter: Path | None, prompts: Sequence[tuple[int, ...]]
) -> list[torch.Tensor]:
    """peft's logits of each prompt's last token."""
    model = base(model_folder)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter)).eval()
    with torch.inference_mode():
        return [model(input_ids=torch.tensor([prompt])).logits[0, -1] for prompt in prompts]


def greedy(model_folder: Path, adapter: Path | None, prompt: tuple[int, ...], count: int) -> list[int]:
    """peft's most probable tokens."""
    model = base(model_folder)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter)).eval()
    ids = torch.tensor([prompt])
    out = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
        do_sample=False, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


def save_tensors(folder: Path, layers: dict[str, tuple[int, int, int]]) -> None:
    """Weights for layers, each of a rank, inputs and outputs. They need not fit any model."""
    tensors = {}
    for name, (rank, inputs, outputs) in layers.items():
        tensors[f"{name}.lora_A.weight"] = torch.ones(rank, inputs)
        tensors[f"{name}.lora_B.weight"] = torch.ones(outputs, rank)
    save_file(tensors, folder / "adapter_model.safetensors")
