"""Loads a model, makes it fast, and shows that it still says the same."""

from __future__ import annotations

import gc

import structlog
import torch

from llmendpoint_server.engine import gate, loading, quantizing, surgery
from llmendpoint_server.engine.attention.cache import PagedCache
from llmendpoint_server.engine.attention.choice import MakeBackend, Needs, choose, reference
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.loading import CausalLM, Folder
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.quantizing import Quantization
from llmendpoint_server.errors import BadConfiguration, UnsupportedArchitecture


def prepare(
    folder: Folder,
    form: Format | None,
    device: torch.device,
    dtype: torch.dtype,
    kernels: Kernels | None,
    quantization: Quantization | None,
) -> tuple[CausalLM, PagedCache, MakeBackend, Kernels | None]:
    """Load the model, route it through our pages and make it fast. Its logits are compared with its own forward before
    and after. Returns the model, the probe's cache, whose layers have the shapes that it needs, its backend, and the kernels
    that it uses. `form`: of the weights, if the files hold quantized ones. Raises UnsupportedArchitecture, or BadConfiguration for a
    quantization that does not work here."""
    _check_quantization(quantization, kernels)
    architecture = folder.architecture
    model = loading.load_model(folder, device, dtype, form)
    prompts = gate.probe_prompts(int(loading.text_config(model.config).vocab_size))
    expected = gate.reference_logits(model, prompts, device)
    if quantization and kernels:
        expected = _quantize(model, kernels, quantization, prompts, expected)
    gate.open_to_pages(architecture, model)
    gathered = reference(device, dtype)
    seen = gate.check_pages(architecture, model, expected, prompts, gathered, gate.TOLERANCE[dtype])
    probe = seen.cache
    make = choose(Needs(device, dtype, tuple(probe.layers.values()), tuple(seen.rules.values())), kernels)
    surgery.operate(model, device, dtype, kernels)
    try:
        gate.check_pages(architecture, model, expected, prompts, make, gate.TOLERANCE[dtype])
        return model, probe, make, kernels
    except UnsupportedArchitecture as error:
        if quantization:
            why = f"--quantization is {quantization}, which does not work for this model: leave it out"
            raise BadConfiguration(f"{why} ({error.why}).") from error
        structlog.get_logger().warning(
            "served with its linear layers as they are, which is slower", cause=error.why
        )
    # Outside of the handler, because the exception's frames hold the model: memory may be too small for two models.
    del model, seen
    gc.collect()
    model = loading.load_model(folder, device, dtype, form)
    gate.open_to_pages(architecture, model)
    return model, probe, gathered, None


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


def _check_quantization(quantization: Quantization | None, kernels: Kernels | None) -> None:
    if quantization and kernels is None:
        raise BadConfiguration(
            f"--quantization is {quantization}, which needs the CPU kernels, and they do not run here: it is no CPU, or the "
            "log has the cause. Leave it out."
        )
