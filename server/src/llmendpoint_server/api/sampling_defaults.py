"""The defaults of the model's generation_config.json, for requests that leave a field out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from llmendpoint_server import limits

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "min_p": (0,), "repetition_penalty": (1,), "typical_p": (1,), "epsilon_cutoff": (0,), "eta_cutoff": (0,),
    "no_repeat_ngram_size": (0,), "num_beams": (1,), "penalty_alpha": (0,),
}  # fmt: skip
"""Fields that change what is sampled but that the sampler does not support, with their neutral values."""


@dataclass(frozen=True)
class SamplingDefaults:
    """For requests that leave these fields out. `top_k` 0 is off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


def read_sampling_defaults(folder: Path) -> SamplingDefaults:
    """`do_sample: false` means greedy. Logs a warning for each field that has no effect here. Raises ValueError."""
    path = folder / "generation_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    if config.get("do_sample") is False:
        return SamplingDefaults(temperature=0.0)
    for name, neutral in UNSUPPORTED.items():
        if config.get(name) is not None and config[name] not in neutral:
            _warn(name, config[name], "the sampler does not support it")
    default = SamplingDefaults()
    temperature = _number(config, "temperature", limits.TEMPERATURE_MIN, limits.TEMPERATURE_MAX)
    top_p = _number(config, "top_p", limits.TOP_P_MIN, limits.TOP_P_MAX)
    top_k = _number(config, "top_k", min(limits.TOP_K_OFF), limits.TOP_K_MAX)
    return SamplingDefaults(
        default.temperature if temperature is None else temperature,
        top_p or default.top_p,  # 0 is not allowed in a request either
        max(0, int(top_k or 0)),
    )


def _number(config: dict[str, Any], name: str, lowest: float, highest: float) -> float | None:
    value = config.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        _warn(name, value, f"it must be a number from {lowest:g} to {highest:g}")
        return None
    return value


def _warn(name: str, value: object, why: str) -> None:
    structlog.get_logger().warning(
        f"{name} in the model's generation_config.json is ignored: {why}.", field=name, value=str(value)[:64]
    )
