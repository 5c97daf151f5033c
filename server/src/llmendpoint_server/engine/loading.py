"""Reads a model from a local folder, and refuses what cannot be served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llmendpoint_server.engine.machine import cpu_has_bf16
from llmendpoint_server.errors import BadConfiguration, ModelNotFound

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class CausalLM(Protocol):
    """What is used of transformers' models, which publish no types."""

    config: Any
    attending: Any
    """set by engine/forward.py"""

    def __call__(self, **kwargs: Any) -> Any: ...
    def modules(self) -> Iterator[Any]: ...
    def set_attn_implementation(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that holds a model, and its configuration."""

    path: Path
    config: Any

    @property
    def architecture(self) -> str:
        return str(self.config.model_type)


def open_folder(path: str) -> Folder:
    """Raises ModelNotFound if `path` is not a folder with config.json and *.safetensors."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelNotFound(
            f"There is no folder {path}: --model must name one with config.json and *.safetensors."
        )
    missing = [name for name in ("config.json", "*.safetensors") if not any(folder.glob(name))]
    if missing:
        raise ModelNotFound(
            f"The folder {path} has no {' and no '.join(missing)}: a model in transformers' layout has both."
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError) as error:
        first_line = re.split(r"\n|\. ", str(error), maxsplit=1)[0]
        raise ModelNotFound(f"The config.json in {path} cannot be used: {first_line}.") from error
    return Folder(folder, config)


def choose_device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadConfiguration("--device is cuda, and torch finds no CUDA device here: use cpu or auto.")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def choose_dtype(wanted: str, device: torch.device, saved: torch.dtype | None) -> torch.dtype:
    """`auto` is bf16 if the device multiplies it; otherwise float16 on CUDA and float32 on CPU. On CUDA a model that
    was saved in float16 stays in it."""
    if wanted != "auto":
        return DTYPES[wanted]
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bf16 and saved is not torch.float16 else torch.float16
    return torch.bfloat16 if cpu_has_bf16() else torch.float32


def saved_dtype(config: Any) -> torch.dtype | None:
    """The dtype of the weights by config.json; None if it does not say."""
    saved = getattr(text_config(config), "dtype", None) or getattr(config, "dtype", None)
    return getattr(torch, saved, None) if isinstance(saved, str) else saved


def load_model(folder: Folder, device: torch.device, dtype: torch.dtype) -> CausalLM:
    """The model with its weights, in transformers' own form, ready for inference."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder.path,
            config=folder.config,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (ValueError, OSError) as error:
        raise ModelNotFound(f"The model in {folder.path} cannot be loaded: {error}") from error
    return model.to(device).eval()  # type: ignore[no-any-return]  # transformers publishes no types


def text_config(config: Any) -> Any:
    """The language model's part of a configuration."""
    return config.get_text_config(decoder=True)


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """From the generation configuration, which may list several; otherwise from the model's own configuration."""
    ids = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if ids is None:
        ids = getattr(text_config(model.config), "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)


def config_max_model_len(config: Any) -> int:
    """The longest sequence that the model was made for. Raises BadConfiguration if its config.json does not say."""
    text = text_config(config)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 1:
            return value
    raise BadConfiguration("The model's config.json names no longest sequence: set --max-model-len.")
