"""What tokens cost. A throughput is measured, or it is the upper bound that memory and arithmetic allow.

Decode's limit (arXiv 2211.05102, section 2): a step reads all weights and the keys and values of its batch once, and
multiplies each active parameter twice per sequence: t >= max((weights + KV) / bandwidth, 2 x active x batch / FLOPS).
Engines reach about half of it; prefill comes on top.
"""

from __future__ import annotations

from .accelerators import Accelerator
from .memory import Load, kv_sequence_bytes, weights_bytes
from .model import Model

HOUR = 3600.0


def decode_limit(
    model: Model, load: Load, accelerator: Accelerator, accelerators: int, batch: int, context: int
) -> float:
    """Output tokens per second that no engine exceeds on one replica, with `batch` sequences of `context` tokens. For a
    mixture of experts all weights are read, which holds from a few dozen sequences on."""
    weights = weights_bytes(model, load) / accelerators
    cache = batch * kv_sequence_bytes(model, load, context, accelerators)
    reading = (weights + cache) / (accelerator.bandwidth * 1e9)
    active = model.shape.active_parameters or model.shape.parameters
    multiplying = 2 * active * batch / (accelerator.tflops * 1e12 * accelerators)
    return batch / max(reading, multiplying)


def per_thousand(hourly: float, tokens_per_second: float) -> float:
    """USD for 1,000 tokens of a replica that costs `hourly` and is always busy."""
    return hourly / HOUR / tokens_per_second * 1000


def breakeven(hourly: float, api_per_million: float) -> float:
    """Tokens per second, around the clock, above which the replica is cheaper than an API at USD per million tokens."""
    return hourly / HOUR / (api_per_million / 1e6)
