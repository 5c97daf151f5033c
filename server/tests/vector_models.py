"""Tiny models with random weights that embed or score, saved as their authors save them, with a tokenizer of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

WORDS = [
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    "the",
    "pod",
    "is",
    "ready",
    "gateway",
    "model",
    "waits",
    "cat",
    "sat",
    "rain",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
_BASE: dict[str, Any] = {
    "vocab_size": len(VOCABULARY), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "xlm-roberta": ("xlm-roberta", {"type_vocab_size": 1}),
    "modernbert": (
        "modernbert",
        {"num_hidden_layers": 3, "local_attention": 8, "cls_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "bos_token_id": 2},
    ),
    "distilbert": ("distilbert", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 8}),
    "llama": ("llama", {"num_key_value_heads": 2}),
}  # fmt: skip


def save_tokenizer(folder: Path, decoder: bool = False) -> None:
    """A word is a token, a letter where it is none. An encoder gets [CLS] … [SEP], a decoder … [SEP]."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single, pair = (
        ("$A [SEP]", "$A [SEP] $B:0 [SEP]:0")
        if decoder
        else ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, VOCABULARY[name]) for name in SPECIAL[2:]]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"})
    )


def save(
    shape: str,
    folder: Path,
    *,
    head: Any = AutoModel,
    modules: list[dict[str, Any]] | None = None,
    pooling: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """`modules`, `pooling`: what sentence-transformers writes; None: the folder has none of it. `config`: more of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    kind, own = SHAPES[shape]
    made = AutoConfig.for_model(kind, **{**_BASE, **own, **config})
    model = head.from_config(made).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    save_tokenizer(folder, decoder=shape in ("qwen3", "llama"))
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def sentence_transformer(pooled: str, normalize: bool = True) -> dict[str, Any]:
    """The arguments of `save` for a model of sentence-transformers that pools by `pooled`: mean_tokens, cls_token, lasttoken."""
    names = ("Transformer", "Pooling", *(["Normalize"] if normalize else []))
    modules = [
        {
            "idx": at,
            "name": str(at),
            "path": f"{at}_{name}" if at else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for at, name in enumerate(names)
    ]
    modes = (
        "cls_token",
        "mean_tokens",
        "max_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    )
    pooling = {"word_embedding_dimension": 32, "include_prompt": True} | {
        f"pooling_mode_{mode}": mode == pooled for mode in modes
    }
    return {"modules": modules, "pooling": pooling}


def save_scorer(shape: str, folder: Path, *, labels: int = 1, **config: Any) -> Path:
    return save(shape, folder, head=AutoModelForSequenceClassification, num_labels=labels, **config)


def save_causal(folder: Path, **options: Any) -> Path:
    """A decoder that is saved with its head, as Qwen3-Embedding is."""
    return save("qwen3", folder, head=AutoModelForCausalLM, **options)
