"""Loads a model, makes it fast, and shows that it still says the same."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import structlog
import torch

from llmendpoint_server.engine import gate, loading, quantizing, surgery, triton
from llmendpoint_server.engine.adapters.stack import Shapes, linears_of
from llmendpoint_server.engine.attention.cache import PagedCache
from llmendpoint_server.engine.attention.choice import (
    KEPT,
    KvDtype,
    MakeBackend,
    Needs,
    choose,
    in_eight_bits,
    reference,
)
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.loading import CausalLM, Folder
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.native_operators import NativeOperators
from llmendpoint_server.engine.operators import Operators
from llmendpoint_server.engine.parallel.dividing import load_model
from llmendpoint_server.engine.parallel.group import Group
from llmendpoint_server.engine.quantizing import Quantization
from llmendpoint_server.errors import BadConfiguration, UnsupportedArchitecture
from llmendpoint_server.protocol import Configure


@dataclass(frozen=True, slots=True)
class Prepared:
    """`probe`: a cache whose layers have the shapes that the model needs. `kernels`: those that it uses.
    `linears`: the layers that adapters may change."""

    model: CausalLM
    probe: PagedCache
    make_backend: MakeBackend
    kernels: Kernels | None
    linears: Shapes


def prepare(
    folder: Folder,
    form: Format | None,
    device: torch.device,
    dtype: torch.dtype,
    kernels: Kernels | None,
    settings: Configure,
    group: Group | None = None,
) -> Prepared:
    """Load the model, route it through our pages and make it fast. Its logits are compared with its own forward before
    and after. `form`: of the weights, if the files hold quantized ones. `group`: all of its ranks do the same at the same time, each with
    its part of the weights; what one of them sees of logits, all see. Raises UnsupportedArchitecture, or BadConfiguration for eight
    or four bits that do not work here."""
    quantization = settings.quantization
    _check_kernels(settings, kernels)
    architecture = folder.architecture
    model = load_model(folder, device, dtype, form, group)
    prompts = gate.probe_prompts(int(loading.text_config(model.config).vocab_size))
    expected = gate.reference_logits(model, prompts, device)
    if quantization and kernels:
        expected = _quantize(model, kernels, quantization, prompts, expected)
    gate.open_to_pages(architecture, model)
    gathered = reference(device, dtype)
    seen = gate.check_pages(architecture, model, expected, prompts, gathered, gate.TOLERANCE[dtype])
    probe = seen.cache
    needs = Needs(device, dtype, tuple(probe.layers.values()), tuple(seen.rules.values()))
    make = choose(needs, kernels)
    linears = linears_of(model)
    surgery.operate(model, _operators(device, dtype, kernels, group))
    try:
        gate.check_pages(architecture, model, expected, prompts, make, gate.TOLERANCE[dtype])
        if settings.kv_cache_dtype != "auto":
            make, probe = _in_eight_bits(settings.kv_cache_dtype, needs, kernels, model, prompts, expected)
        return Prepared(model, probe, make, kernels, linears)
    except UnsupportedArchitecture as error:
        if quantization or settings.kv_cache_dtype != "auto":
            raise BadConfiguration(
                f"{_asked(settings)}, which does not work for this model: leave it out ({error.why})."
            ) from error
        structlog.get_logger().warning(
            "served with its linear layers as they are, which is slower", cause=error.why
        )
    # Outside of the handler, because the exception's frames hold the model: memory may be too small for two models.
    del model, seen
    gc.collect()
    model = load_model(folder, device, dtype, form, group)
    gate.open_to_pages(architecture, model)
    return Prepared(model, probe, gathered, None, linears)


def _operators(
    device: torch.device, dtype: torch.dtype, kernels: Kernels | None, group: Group | None
) -> Operators | None:
    """What modules are fused by. On CUDA the layers of several ranks stay as they are."""
    if kernels is not None:
        return NativeOperators(kernels, dtype)
    return triton.find(device, dtype) if device.type == "cuda" and group is None else None


def _in_eight_bits(
    kept: KvDtype,
    needs: Needs,
    kernels: Kernels | None,
    model: CausalLM,
    prompts: list[list[int]],
    expected: torch.Tensor,
) -> tuple[MakeBackend, PagedCache]:
    """The backend whose pages are of eight bits, and the cache of its probe. Raises BadConfiguration if it cannot serve the model."""
    make = in_eight_bits(needs, kernels, KEPT[kept])
    if make is None:
        raise BadConfiguration(
            f"--kv-cache-dtype is {kept}, and the kernels do not read heads of this model's size: leave it out."
        )
    logits, backend = gate.paged_logits(model, prompts, make)
    apart = gate.worst_median(logits, expected)
    if apart > gate.KV_TOLERANCE:
        raise BadConfiguration(
            f"--kv-cache-dtype is {kept}, and changes what this model says too much: leave it out (its logits are off by "
            f"{apart:.2g} of their spread)."
        )
    structlog.get_logger().info("KV cache in 8 bits", kept=kept, logits_off_by=round(apart, 4))
    return make, backend.cache


def _quantize(
    model: CausalLM,
    kernels: Kernels,
    quantization: Quantization,
    prompts: list[list[int]],
    exact: torch.Tensor,
) -> torch.Tensor:
    """The logits of the model with quantized weights, which it has from now on. Raises BadConfiguration if they are far from its
    `exact` ones."""
    with torch.inference_mode():
        quantizing.quantize(model, kernels, quantization)
    rounded = gate.reference_logits(model, prompts, exact.device)
    apart = gate.worst_median(rounded, exact)
    if apart > gate.QUANTIZED_TOLERANCE[quantization]:
        raise BadConfiguration(
            f"--quantization is {quantization}, and changes what this model says too much: leave it out (its logits are off by "
            f"{apart:.2g} of their spread)."
        )
    structlog.get_logger().info("weights are quantized", to=quantization, logits_off_by=round(apart, 4))
    return rounded


def _asked(settings: Configure) -> str:
    """The first of the flags that need the kernels, with its value."""
    if settings.quantization:
        return f"--quantization is {settings.quantization}"
    return f"--kv-cache-dtype is {settings.kv_cache_dtype}"


def _check_kernels(settings: Configure, kernels: Kernels | None) -> None:
    if (settings.quantization or settings.kv_cache_dtype != "auto") and kernels is None:
        raise BadConfiguration(
            f"{_asked(settings)}, which needs the CPU kernels, and they do not run here: it is no CPU, or the "
            "log has the cause. Leave it out."
        )
