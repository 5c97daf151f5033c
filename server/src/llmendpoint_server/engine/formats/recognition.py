"""Which format the weights of a model have, by its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llmendpoint_server.engine.formats.awq import Awq
from llmendpoint_server.engine.formats.compressed import CompressedTensors
from llmendpoint_server.engine.formats.fp8 import Fp8
from llmendpoint_server.engine.formats.gptq import Gptq
from llmendpoint_server.engine.formats.groups import UnsupportedWeights
from llmendpoint_server.engine.formats.layer import Format

FORMATS: Mapping[str, Callable[[Mapping[str, Any]], Format]] = {
    "gptq": Gptq,
    "awq": Awq,
    "compressed-tensors": CompressedTensors,
    "fp8": Fp8,
    "fbgemm_fp8": Fp8,
}
"""By `quant_method`."""


def format_of(config: Any) -> Format | None:
    """None if the weights are not quantized. Raises UnsupportedWeights with what can be read."""
    options = getattr(config, "quantization_config", None) or getattr(config, "compression_config", None)
    if not options:
        return None
    if not isinstance(options, Mapping):
        raise UnsupportedWeights("are quantized, and quantization_config is no object")
    method = options.get("quant_method")
    make = FORMATS.get(method) if isinstance(method, str) else None
    if make is None:
        raise UnsupportedWeights(
            f"are quantized by {str(method)[:40]!r}; {', '.join(sorted(FORMATS))} and GGUF are read: take such a checkpoint, or the one "
            "that is not quantized"
        )
    return make(options)
