"""What an endpoint's spec asks of its engine, and what the engine can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .memory import Load
from .quantity import parse_bytes

OURS = "llmendpoint"
"""The bundled engine: it uses one accelerator, and keeps whole sequences in windowed layers."""

_SPLITTING = re.compile(r"\$\(accelerator\.count\)|^--(tensor-parallel|tp|num-shard)")


def parse_load(spec: Mapping[str, Any]) -> Load:
    """From an LLMEndpoint's spec as JSON. Raises ValueError."""
    engine = spec.get("engine") or {}
    dtype, cache = engine.get("dtype", "auto"), engine.get("kvCacheMemory")
    return Load(
        max_model_len=engine.get("maxModelLen"),
        max_num_seqs=engine.get("maxNumSeqs"),
        dtype=None if dtype == "auto" else str(dtype),
        kv_cache=parse_bytes(cache) if cache is not None else None,
        frees_windows=runtime_of(spec) != OURS,
    )


def runtime_of(spec: Mapping[str, Any]) -> str:
    """The name of its LLMRuntime."""
    return str((spec.get("runtime") or {}).get("name") or OURS)


def splits(arguments: Iterable[str]) -> bool:
    """Whether an engine with these arguments divides a model over its accelerators: it is told how many."""
    return any(_SPLITTING.search(argument) for argument in arguments)
