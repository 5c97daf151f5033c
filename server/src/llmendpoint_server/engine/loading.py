"""Reads a model from a local folder, and refuses what cannot be served."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from llmendpoint_server.engine.formats import checkpoint
from llmendpoint_server.engine.formats.gguf import check_file
from llmendpoint_server.engine.formats.groups import Groups
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.linear import with_groups
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
    """A folder that holds a model, and its configuration. `gguf`: the file of the weights, if they are in that format."""

    path: Path
    config: Any
    gguf: Path | None = None

    @property
    def architecture(self) -> str:
        return str(self.config.model_type)


def open_folder(path: str) -> Folder:
    """Raises ModelNotFound if `path` is not a folder with config.json and weights."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelNotFound(
            f"There is no folder {path}: --model must name one with config.json and *.safetensors."
        )
    gguf = None if any(folder.glob("*.safetensors")) else _one_gguf(folder)
    wanted = ("config.json",) if gguf else ("config.json", "*.safetensors")
    missing = [name for name in wanted if not any(folder.glob(name))]
    if missing:
        raise ModelNotFound(
            f"The folder {path} has no {' and no '.join(missing)}: a model in transformers' layout has both."
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError) as error:
        first_line = re.split(r"\n|\. ", str(error), maxsplit=1)[0]
        raise ModelNotFound(f"The config.json in {path} cannot be used: {first_line}.") from error
    return Folder(folder, config, gguf)


def _one_gguf(folder: Path) -> Path | None:
    """Raises ModelNotFound for several, because each is a model of its own, or a part of one."""
    files = sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        raise ModelNotFound(
            f"The folder {folder} has {len(files)} GGUF files ({files[0].name}, {files[1].name} ...): keep the one to serve, in one piece."
        )
    return files[0] if files else None


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


def load_model(
    folder: Folder, device: torch.device, dtype: torch.dtype, form: Format | None = None
) -> CausalLM:
    """The model with its weights, in transformers' own form, ready for inference. `form`: of quantized weights. Its linear layers then
    have the weights that these stand for; those that are whole numbers in groups keep them, too, as `quantized`."""
    try:
        if form is not None:
            model = _load_quantized(folder, dtype, form)
        elif folder.gguf is not None:
            model = _load_gguf(folder, folder.gguf, dtype)
        else:
            model = read_plain(folder, dtype)
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        raise ModelNotFound(f"The model in {folder.path} cannot be loaded: {error}") from error
    return model.to(device).eval()  # type: ignore[no-any-return]  # transformers publishes no types


PLAIN = ("F16", "BF16", "F32", "F64")


def check_plain(folder: Path) -> None:
    """Raises ValueError for a file that is not whole, and for a matrix of whole numbers or 8-bit floats: without its scales, which
    transformers leaves out if config.json has no quantization_config, it is nonsense."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  it is no mapping
                    tensor = file.get_slice(name)
                    kind = tensor.get_dtype()
                    if kind not in PLAIN and name.endswith(".weight") and len(tensor.get_shape()) > 1:
                        raise ValueError(
                            f"{name} is {kind} in {path.name}, and config.json has no quantization_config that says how to read it"
                        )
        except SafetensorError as error:
            raise ValueError(f"{path.name} is cut short or no safetensors file: {error}") from error


def read_plain(folder: Folder, dtype: torch.dtype, **options: Any) -> Any:
    """The model of weights of 16 or 32 bits, with `options` of transformers' `from_pretrained`. Raises ValueError for weights that are not
    whole."""
    check_plain(folder.path)
    return _complete(
        *AutoModelForCausalLM.from_pretrained(
            folder.path,
            config=folder.config,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    )


def _load_quantized(folder: Folder, dtype: torch.dtype, form: Format) -> Any:
    """Raises ValueError for weights that contradict each other or the configuration."""
    config = copy.deepcopy(folder.config)
    for name in ("quantization_config", "compression_config"):
        if hasattr(config, name):
            delattr(config, name)  # otherwise transformers wants the library that wrote it
    read = checkpoint.read(folder.path, form, dtype)
    with torch.device("meta"):
        kind = type(AutoModelForCausalLM.from_config(config))
    model = _complete(
        *kind.from_pretrained(
            None,
            config=config,
            state_dict=read.weights,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    )
    if any(folder.path.glob("generation_config.json")):
        model.generation_config = GenerationConfig.from_pretrained(folder.path, local_files_only=True)
    kept = _keep_groups(model, read.groups)
    structlog.get_logger().info(
        "quantized weights",
        format=form.title,
        layers_kept=kept,
        layers_dequantized=len(read.groups) + read.dense - kept,
        dequantized_to=str(dtype).removeprefix("torch."),
    )
    return model


def _load_gguf(folder: Folder, file: Path, dtype: torch.dtype) -> Any:
    """Raises ValueError for a file that is not whole, or that is another model than the configuration says."""
    found = check_file(file)
    model = _complete(
        *AutoModelForCausalLM.from_pretrained(
            folder.path,
            gguf_file=file.name,
            config=folder.config,
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    )
    structlog.get_logger().info(
        "GGUF weights are dequantized", types=found.types, dequantized_to=str(dtype).removeprefix("torch.")
    )
    return model


def _complete(model: Any, info: dict[str, Any]) -> Any:
    """Raises ValueError if the model got no weights, or wrong ones, for something: transformers would leave it at random ones."""
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"there are no weights for {len(missing)} tensors, such as {missing[0]}")
    if mismatched := sorted(map(str, info["mismatched_keys"])):
        raise ValueError(
            f"{len(mismatched)} tensors have other sizes than the configuration says, such as {mismatched[0]}"
        )
    return model


def _keep_groups(model: Any, groups: dict[str, Groups]) -> int:
    """Give each linear layer its groups; returns how many it are. Others have weights that the model holds in another shape."""
    layers, kept = dict(model.named_modules()), 0
    for name, one in groups.items():
        layer = layers.get(name)
        if type(layer) is nn.Linear and layer.weight.shape == one.values.shape:
            with_groups(layer, one)
            kept += 1
    return kept


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
