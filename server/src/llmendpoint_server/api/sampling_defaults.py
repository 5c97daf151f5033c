"""The defaults of the model's generation_config.json, for requests that leave a field out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from llmendpoint_server import limits

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "typical_p": (1,), "epsilon_cutoff": (0,), "eta_cutoff": (0,),
    "no_repeat_ngram_size": (0,), "num_beams": (1,), "penalty_alpha": (0,), "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],), "bad_words_ids": ([],), "forced_bos_token_id": (), "forced_eos_token_id": (),
}  # fmt: skip
"""Fields that change what is sampled but that the sampler does not support, with their neutral values."""

_SERVED = (
    ("temperature", limits.TEMPERATURE_MIN, limits.TEMPERATURE_MAX),
    ("top_p", limits.TOP_P_MIN, limits.TOP_P_MAX),
    ("top_k", min(limits.TOP_K_OFF), limits.TOP_K_MAX),
    ("min_p", limits.MIN_P_MIN, limits.MIN_P_MAX),
    ("repetition_penalty", limits.REPETITION_PENALTY_MIN, limits.REPETITION_PENALTY_MAX),
    ("max_new_tokens", limits.MAX_TOKENS_MIN, limits.MAX_TOKENS_MAX),
)
_DRAWN = ("temperature", "top_p", "top_k", "min_p")
"""Without a meaning for a model that says that it is greedy."""


@dataclass(frozen=True)
class SamplingDefaults:
    """For requests that leave these fields out. `top_k` 0 is off. `max_tokens`: no answer is longer, as with vLLM; None: no such
    bound."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None


def read_sampling_defaults(folder: Path) -> SamplingDefaults:
    """`do_sample: false` means greedy. Logs a warning for each field that has no effect here. Raises ValueError."""
    path = folder / "generation_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    for name, neutral in UNSUPPORTED.items():
        if config.get(name) is not None and config[name] not in neutral:
            _warn(name, config[name], "the sampler does not support it")
    greedy = config.get("do_sample") is False
    found = {
        name: value
        for name, lowest, highest in _SERVED
        if (value := _number(config, name, lowest, highest)) is not None and not (greedy and name in _DRAWN)
    }
    default = SamplingDefaults(temperature=0.0 if greedy else 1.0)
    most = found.get("max_new_tokens")
    return SamplingDefaults(
        found.get("temperature", default.temperature),
        found.get("top_p") or default.top_p,  # 0 is not allowed in a request either
        max(0, int(found.get("top_k", default.top_k))),
        found.get("min_p", default.min_p),
        found.get("repetition_penalty", default.repetition_penalty),
        None if most is None else int(most),
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
