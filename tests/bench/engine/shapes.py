"""The models of the tables and what is asked of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A model by its configuration in transformers' terms, and how its tokens are drawn.

    `final_norm`: all weights of the last norm. With 1 the random parameters give almost equal probabilities. 8 gives a
    distribution like a trained model's: some dozens of the tokens hold 95 % of the mass.
    """

    name: str
    title: str
    config: dict[str, Any] = field(hash=False)
    temperature: float = 0.0
    top_p: float = 1.0
    final_norm: float = 1.0

    @property
    def vocab(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def digest(self) -> str:
        text = json.dumps([self.config, self.final_norm], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def drawing(self) -> str:
        return (
            "greedy" if self.temperature == 0 else f"temperature {self.temperature:g}, top_p {self.top_p:g}"
        )

    @property
    def parameters(self) -> int:
        """Parameters that a decoding step multiplies with: all linear layers and the vocabulary's."""
        c = self.config
        width, heads, pairs = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        attention = width * c["head_dim"] * (2 * heads + 2 * pairs)
        layer = attention + 3 * width * c["intermediate_size"]
        return int(c["num_hidden_layers"] * layer + c["vocab_size"] * width)

    def context_bytes(self, tokens: float, element_bytes: int) -> float:
        """Bytes of the KV cache of so many tokens."""
        c = self.config
        return tokens * 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["head_dim"] * element_bytes


LLAMA = Shape(
    "llama",
    "a Llama of 134M random parameters",
    {
        "model_type": "llama",
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    },
)
QWEN3 = Shape(
    "qwen3",
    "four layers of a Qwen3 with 152k tokens, 218M random parameters",
    {
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    },
    temperature=1.0,
    top_p=0.95,
    final_norm=8.0,
)
SHAPES = {shape.name: shape for shape in (LLAMA, QWEN3)}


@dataclass(frozen=True)
class Work:
    """What every contender is asked in one round: `count` prompts at once."""

    count: int
    tokens_in: int
    tokens_out: int

    @property
    def decodes(self) -> bool:
        return self.tokens_out > 1


FIRST_TOKEN = Work(1, 512, 1)


def decoding(count: int) -> Work:
    return Work(count, 64, 64)
