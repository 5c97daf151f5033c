"""A model in the shapes of Qwen3-0.6B, with random weights, and the engine on it."""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.protocol import Configure

CONFIG = Qwen3Config(
    vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True, rope_theta=1e6,
    rms_norm_eps=1e-6, eos_token_id=None, pad_token_id=None, bos_token_id=None,
)  # fmt: skip
KV_BYTES = CONFIG.num_hidden_layers * CONFIG.num_key_value_heads * CONFIG.head_dim * 2 * 2
"""Of one token."""
WEIGHTS = 2 * (
    CONFIG.num_hidden_layers
    * CONFIG.hidden_size
    * (
        CONFIG.head_dim * (2 * CONFIG.num_attention_heads + 2 * CONFIG.num_key_value_heads)
        + 3 * CONFIG.intermediate_size
    )
    + CONFIG.vocab_size * CONFIG.hidden_size
)
"""Bytes of the matrices that each step multiplies with."""


def saved() -> Path:
    """Its folder, written at the first call."""
    place = Path(os.environ.get("TMPDIR", "/tmp")) / "llmendpoint-bench-qwen3-0.6b"
    if not (place / "model.safetensors").exists():
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
        model.save_pretrained(place)
    return place


@dataclass(frozen=True)
class Served:
    runner: ModelRunner
    engine: Engine
    seconds: float
    """that the load took"""


def served(max_model_len: int = 4096) -> Served:
    began = time.monotonic()
    configure = Configure(str(saved()), device="cuda", dtype="bfloat16", max_model_len=max_model_len)
    runner, info = load(configure)
    return Served(
        runner, Engine(runner, make_scheduler(configure, info), launcher=runner), time.monotonic() - began
    )


def request(name: str, prompt: int, answer: int, temperature: float = 0.0) -> Request:
    """A prompt of so many tokens, which begins like no other one, and so many tokens of answer."""
    number = zlib.crc32(name.encode())
    ids = tuple(1 + (number + 31 * place) % (CONFIG.vocab_size - 1) for place in range(prompt))
    sampling = SamplingParams(answer, temperature=temperature, ignore_eos=True, seed=1)
    return Request(name, ids, sampling)


@dataclass(frozen=True)
class Run:
    seconds: float
    tokens: int
    steps: int
    first_s: float
    """until each request had its first token"""


def run(served: Served, requests: list[Request]) -> Run:
    """All at once, to the end."""
    engine = served.engine
    torch.cuda.synchronize()
    began, tokens, steps, waiting, first_s = time.monotonic(), 0, 0, {one.id for one in requests}, 0.0
    for one in requests:
        engine.add(one)
    while not engine.scheduler.idle:
        steps += 1
        for output in engine.step():
            assert not output.detail, output
            tokens += len(output.tokens)
            if waiting:
                waiting.discard(output.id)
                first_s = time.monotonic() - began
    return Run(time.monotonic() - began, tokens, steps, first_s)
