"""Which models can be divided over ranks, and the modules of one that is.

transformers reads each rank's part of the weights, as the model's `tp_plan` says. Its own layers then wrap each of these parts in a DTensor,
which our kernels and joined projections do not read. So they are taken out, and engine/parallel/layers.py has what stands there instead.
"""

from __future__ import annotations

import re
from functools import reduce
from math import gcd
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from llmendpoint_server.engine import loading
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.loading import CausalLM, Folder, text_config
from llmendpoint_server.engine.parallel.group import Group
from llmendpoint_server.engine.parallel.layers import GatheredLinear, RowEmbedding, RowLinear, Summed
from llmendpoint_server.errors import BadConfiguration, ModelNotFound
from llmendpoint_server.protocol import Configure

DIVIDED = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "phi3",
    "cohere2", "granite", "olmo2", "glm4", "smollm3", "deepseek_v3",
)  # fmt: skip
"""Families that the tests show to say the same divided. A plan that is wrong gives wrong text without an error."""
_HEADS = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "KV heads",
    "num_global_key_value_heads": "KV heads of its global layers",
}
_KEPT = frozenset(
    {"colwise", "packed_colwise", "local_params", "replicate", "replicated_with_grad_allreduce"}
)
"""Styles of modules that need nothing beside their part of the weights."""


def check_divisible(settings: Configure, folder: Folder, form: Format | None) -> None:
    """Raises BadConfiguration for a family or for weights that are not divided, and for a number that does not divide the heads. `form`: of
    quantized weights."""
    size = settings.tensor_parallel_size
    if settings.max_loras:
        raise BadConfiguration(
            f"--tensor-parallel-size is {size}, and --enable-lora is set: adapters are not divided. Leave one of them out."
        )
    if quantized := settings.quantization or (form.title if form else "GGUF" if folder.gguf else None):
        what = (
            f"--quantization is {quantized}"
            if settings.quantization
            else f"this model's weights are in {quantized}"
        )
        raise BadConfiguration(
            f"--tensor-parallel-size is {size}, and {what}: only weights of 16 or 32 bits are divided. Leave one of them out, or take a "
            "checkpoint that is not quantized."
        )
    if folder.architecture not in DIVIDED:
        raise BadConfiguration(
            f"--tensor-parallel-size is {size}, and a model of the family {folder.architecture} is not divided: set it to 1. Families that "
            f"are: {', '.join(DIVIDED)}."
        )
    config = text_config(folder.config)
    counts = {words: getattr(config, name, None) for name, words in _HEADS.items()}
    found = {words: count for words, count in counts.items() if isinstance(count, int) and count > 0}
    common = reduce(gcd, found.values())
    if common % size:
        has = " and ".join(f"{count} {words}" for words, count in found.items())
        fitting = [str(n) for n in range(1, common + 1) if common % n == 0]
        right = f"{', '.join(fitting[:-1])} or {fitting[-1]}" if len(fitting) > 1 else fitting[0]
        raise BadConfiguration(
            f"--tensor-parallel-size is {size}, and this model has {has}, which {size} accelerators cannot share evenly: it must be {right}."
        )


def load_model(
    folder: Folder, device: torch.device, dtype: torch.dtype, form: Format | None, group: Group | None
) -> CausalLM:
    """As engine/loading.py; of a group only this rank's part."""
    if group is None:
        return loading.load_model(folder, device, dtype, form)
    try:
        model: CausalLM = loading.read_plain(
            folder, dtype, distributed_config=DistributedConfig(tp_size=group.size)
        )
        divide(model, group)
    except (ValueError, OSError, RuntimeError) as error:
        raise ModelNotFound(f"The model in {folder.path} cannot be loaded: {error}") from error
    return cast(Any, model).to(device).eval()  # type: ignore[no-any-return]  # transformers publishes no types


def divide(model: CausalLM, group: Group) -> None:
    """Replace the modules of transformers' tensor parallelism by our own. Raises ValueError for a style that these do not know."""
    whole = cast(nn.Module, model)
    plan: dict[str, str] = cast(Any, model).tp_plan
    sizes = {
        name: tuple(parameter.shape) for name, parameter in whole.named_parameters(remove_duplicate=False)
    }
    _unwrap(whole)
    for name, module in list(whole.named_modules()):
        module.__dict__.pop("forward", None)
        style = plan.get(_pattern(name))
        if style is None:
            continue
        parent, _, child = name.rpartition(".")
        found = _divided(module, style, group, sizes.get(f"{name}.weight"), name)
        if found is not module:
            setattr(whole.get_submodule(parent), child, found)


def _pattern(name: str) -> str:
    """A module's name as plans write it: any layer's number is `*`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def _unwrap(model: nn.Module) -> None:
    """Make each part of a weight a plain parameter. One that two modules share stays shared."""
    known: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                if id(parameter) not in known:
                    known[id(parameter)] = nn.Parameter(parameter.to_local().detach(), requires_grad=False)
                module._parameters[name] = known[id(parameter)]
        weight = module._parameters.get("weight")
        if isinstance(module, nn.Linear) and weight is not None:
            module.out_features, module.in_features = weight.shape


def _divided(
    module: nn.Module, style: str, group: Group, size: tuple[int, ...] | None, name: str
) -> nn.Module:
    """`size`: of the whole weight."""
    if style in _KEPT:
        return module
    if style in ("moe_tp_experts", "all_reduce"):
        return Summed(module, group)
    if isinstance(module, nn.Linear) and size is not None:
        if style in ("rowwise", "rowwise_split_input"):
            return RowLinear(module, group, splits=style == "rowwise_split_input")
        if style == "colwise_gather_output":
            return GatheredLinear(module, group, size[0])
    if isinstance(module, nn.Embedding) and style == "embedding_rowwise" and size is not None:
        module.padding_idx = None  # its place in the whole embedding, which means nothing without gradients
        rows = -(-size[0] // group.size)
        return RowEmbedding(module, group, rows * group.rank, len(module.weight))
    raise ValueError(
        f"its plan for tensor parallelism has the style {style} for {name}, which is not known here"
    )
