"""Reads what a configuration says of its quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmendpoint_server.engine.formats.groups import UnsupportedWeights


def whole_number(options: Mapping[str, Any], names: Sequence[str], allowed: Sequence[int] = ()) -> int:
    """The first of these options that is there. Raises UnsupportedWeights if none is, or if it is none of `allowed`."""
    value = next((options[name] for name in names if options.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnsupportedWeights(
            f"are quantized, and quantization_config.{names[0]} is {value!r}, which is no whole number"
        )
    if allowed and value not in allowed:
        words = " and ".join(map(str, allowed))
        raise UnsupportedWeights(f"are quantized with {names[0]} {value}; {words} are read")
    return value
