"""Brings up a model that makes vectors: loads it, and checks that an input's vector is the same alone and beside others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import structlog
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from llmendpoint_server.core.batch_limits import Measured, tokens_in_time
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.core.pooling.scheduler import PoolingConfig
from llmendpoint_server.engine import loading
from llmendpoint_server.engine.basis import threads_for
from llmendpoint_server.engine.bring_up import wanted_length
from llmendpoint_server.engine.gate import probe_prompts
from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.engine.pooling.runner import Embedding, Head, PoolingRunner, Score
from llmendpoint_server.engine.pooling.task import is_encoder, read_pooling, scores_by_sigmoid
from llmendpoint_server.errors import BadConfiguration, ModelNotFound, UnsupportedPooling
from llmendpoint_server.protocol import Configure, Loaded, Task
from llmendpoint_server.resources import usable_threads

TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Largest difference of a vector alone and beside others, as a share of its length. A mask that a model does not obey
gives 0.1 and more."""
CUDA_TOKENS = 16_384
MEASURED_TOKENS = 256
"""Of a pass whose time is measured, at most."""
RUNS = 3
MOST_INPUTS = 256
"""Of a step."""


@dataclass(frozen=True, slots=True)
class PoolingModel:
    runner: PoolingRunner
    config: PoolingConfig
    loaded: Loaded


def load(settings: Configure, folder: Folder, task: Task) -> PoolingModel:
    """Load the model. Raises LoadError with the cause."""
    began = time.monotonic()
    _refuse(settings, folder)
    device = loading.choose_device(settings.device)
    dtype = loading.choose_dtype(settings.dtype, device, loading.saved_dtype(folder.config))
    torch.set_num_threads(threads_for(folder, usable_threads()))
    head, trained_for = _head(folder, task)
    model = load_weights(folder, device, dtype, task)
    config = loading.text_config(model.config)
    longest = wanted_length(settings, min(longest_input(model), trained_for or longest_input(model)))
    runner = PoolingRunner(model, head, device, int(getattr(config, "pad_token_id", None) or 0))
    size = _check_mask(runner, folder, int(config.vocab_size), longest, dtype)
    tokens = settings.max_batched_tokens or _tokens_of_a_step(runner, device, longest)
    inputs = min(settings.max_num_seqs or MOST_INPUTS, tokens)
    runner.most_tokens = tokens
    structlog.get_logger().info("batch limits", max_num_seqs=inputs, max_batched_tokens=tokens)
    limits = PoolingConfig(
        longest, int(config.vocab_size), inputs, tokens, settings.max_queued_requests, settings.max_queued_tokens
    )  # fmt: skip
    loaded = Loaded(
        folder.architecture, longest, inputs, settings.max_queued_requests, limits.vocab_size, (), str(device),
        str(dtype).removeprefix("torch."), 0, 0, time.monotonic() - began, task=task,
        dimensions=size if task == "embed" else 0, cuts=_cuts(folder.config, size),
    )  # fmt: skip
    return PoolingModel(runner, limits, loaded)


def _refuse(settings: Configure, folder: Folder) -> None:
    if settings.quantization:
        raise BadConfiguration(
            f"--quantization is {settings.quantization}, which is for models that generate: leave it out."
        )
    if settings.kv_cache_dtype != "auto":
        raise BadConfiguration(
            f"--kv-cache-dtype is {settings.kv_cache_dtype}, and a model that does not generate has no KV cache: leave it out."
        )
    if settings.tensor_parallel_size > 1:
        raise BadConfiguration(
            f"--tensor-parallel-size is {settings.tensor_parallel_size}, and a model that does not generate is not divided: set it to 1."
        )
    if settings.speculative_method or settings.draft_model_path:
        raise BadConfiguration(
            "This model does not generate, so nothing is guessed ahead: leave speculation out."
        )
    if folder.gguf or getattr(folder.config, "quantization_config", None):
        why = "its weights are quantized: take the checkpoint that is not"
        raise UnsupportedPooling(folder.architecture, why)
    if getattr(folder.config, "is_encoder_decoder", False):
        raise UnsupportedPooling(folder.architecture, "it has an encoder and a decoder")
    if getattr(folder.config, "is_causal", True) is False and not is_encoder(folder.config):
        why = "its config.json says that its tokens see those after them (is_causal), which transformers' own model does not do"
        raise UnsupportedPooling(folder.architecture, why)


def _head(folder: Folder, task: Task) -> tuple[Head, int | None]:
    if task == "score":
        return Score(scores_by_sigmoid(folder)), None
    pooling = read_pooling(folder)
    structlog.get_logger().info("pooling", kind=pooling.kind, normalize=pooling.normalize)
    return Embedding(pooling), pooling.longest


def load_weights(folder: Folder, device: torch.device, dtype: torch.dtype, task: Task) -> Any:
    kind: Any = AutoModelForSequenceClassification if task == "score" else AutoModel
    try:
        model, found = kind.from_pretrained(
            folder.path, config=folder.config, dtype=dtype, local_files_only=True, use_safetensors=True,
            trust_remote_code=False, output_loading_info=True,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        raise ModelNotFound(f"The model in {folder.path} cannot be loaded: {error}") from error
    # transformers gives random values to weights that are not there. The pooler of an encoder is not used for a vector.
    missing = [
        name for name in sorted(found["missing_keys"]) if task == "score" or not name.startswith("pooler.")
    ]
    if missing:
        raise ModelNotFound(f"The model in {folder.path} lacks weights: {', '.join(missing[:3])}.")
    model.config.use_cache = False
    return model.to(device).eval()


def longest_input(model: Any) -> int:
    """Tokens that positions are there for. RoBERTa and its like count theirs from after the padding's."""
    made_for = loading.config_max_model_len(model.config)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return made_for - int(module.padding_idx) - 1
    return made_for


def _check_mask(
    runner: PoolingRunner, folder: Folder, vocab_size: int, longest: int, dtype: torch.dtype
) -> int:
    """The size of a vector. Raises UnsupportedPooling unless inputs have the same vectors alone and beside others."""
    prompts = [Input(tuple(prompt[:longest])) for prompt in probe_prompts(vocab_size)]
    try:
        together = runner.vectors(prompts)
        alone = torch.cat([runner.vectors([prompt]) for prompt in prompts])
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
        why = f"a batch through its forward fails ({type(error).__name__}: {error})"
        raise UnsupportedPooling(folder.architecture, why) from error
    if together.dim() != 2 or not bool(together.isfinite().all()):
        raise UnsupportedPooling(folder.architecture, "its vectors are not numbers")
    off = float(((together - alone).norm(dim=1) / alone.norm(dim=1).clamp_min(1e-6)).max())
    if off > TOLERANCE[dtype]:
        why = f"a text's vector differs alone and beside others, by {off:.2g} of its length"
        raise UnsupportedPooling(folder.architecture, why)
    return together.shape[1]


def _tokens_of_a_step(runner: PoolingRunner, device: torch.device, longest: int) -> int:
    if device.type != "cpu":
        return CUDA_TOKENS
    length = min(longest, MEASURED_TOKENS // 4)
    inputs = [Input((1,) * length)] * max(MEASURED_TOKENS // length, 1)
    runs = []
    for _ in range(RUNS):
        began = time.monotonic()
        runner.vectors(inputs)
        runs.append(time.monotonic() - began)
    return tokens_in_time([Measured(length * len(inputs), tuple(runs))], 1)


def _cuts(config: Any, size: int) -> tuple[int, ...] | None:
    """The lengths to which a vector may be cut; empty: any; None: none, because the model was not trained for it."""
    listed = getattr(config, "matryoshka_dimensions", None)
    if isinstance(listed, list):
        return tuple(value for value in listed if isinstance(value, int) and 0 < value <= size)
    return () if getattr(config, "is_matryoshka", False) else None
