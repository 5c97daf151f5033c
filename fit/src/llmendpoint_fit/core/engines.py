"""What an endpoint's spec asks of its engine, and what that engine can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .memory import Load
from .quantity import parse_bytes

OURS = "llmendpoint"
"""The bundled engine. It keeps one place for an adapter more than asked for, to replace one that is in use. On an accelerator it
dequantizes quantized weights, divides only others over several, and keeps whole sequences in windowed layers. If a model has latents, it
keeps the keys and values of each head."""

OURS_READS = frozenset(
    {"gptq 4 bits", "gptq 8 bits", "awq 4 bits", "compressed-tensors", "fp8", "fbgemm_fp8", "gguf"}
)
"""Quantizations, as `Shape` names them."""

ADAPTERS, ADAPTER_RANK = 8, 16
"""The defaults of `engine.maxAdapters` and `engine.maxAdapterRank`."""

EIGHT_BITS = ("int8", "fp8")
"""Values of `engine.kvCacheDtype`."""

DRAFT_FLAG = "--draft-model"

_SPLITTING = re.compile(r"\$\(accelerator\.count\)|^--(tensor-parallel|tp|num-shard)")


def parse_load(spec: Mapping[str, Any]) -> Load:
    """From an LLMEndpoint's spec as JSON. Raises ValueError."""
    engine = spec.get("engine") or {}
    narrow = engine.get("kvCacheDtype", "auto") in EIGHT_BITS
    dtype, cache = engine.get("dtype", "auto"), engine.get("kvCacheMemory")
    ours, adapted = runtime_of(spec) == OURS, bool(spec.get("adapters"))
    if dtype == "auto":
        # The bundled engine uses 16 bits on every accelerator, bfloat16 or float16. For other engines the dtype is
        # unknown.
        dtype = "bfloat16" if ours else None
    return Load(
        max_model_len=engine.get("maxModelLen"),
        max_num_seqs=engine.get("maxNumSeqs"),
        dtype=str(dtype) if dtype is not None else None,
        kv_element_bytes=1 if narrow else None,
        kv_cache=parse_bytes(cache) if cache is not None else None,
        frees_windows=not ours,
        keeps_latents=not ours,
        dequantizes=ours,
        divides_evenly=ours,
        adapters=int(engine.get("maxAdapters", ADAPTERS)) + ours if adapted else 0,
        adapter_rank=int(engine.get("maxAdapterRank", ADAPTER_RANK)) if adapted else 0,
    )


def draft_of(spec: Mapping[str, Any]) -> str | None:
    """The model that guesses tokens for the bundled engine, as its argument names it; None if there is none."""
    arguments = [str(argument) for argument in (spec.get("runtime") or {}).get("args") or ()]
    if runtime_of(spec) != OURS:
        return None
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, mark, value = argument.partition("=")
        if name == DRAFT_FLAG:
            return (value if mark else following) or None
    return None


def runtime_of(spec: Mapping[str, Any]) -> str:
    """The name of the spec's LLMRuntime."""
    return str((spec.get("runtime") or {}).get("name") or OURS)


def reads(spec: Mapping[str, Any]) -> frozenset[str] | None:
    """The quantizations that the spec's engine loads; None: other runtimes are assumed to load all."""
    return OURS_READS if runtime_of(spec) == OURS else None


def splits(arguments: Iterable[str]) -> bool:
    """Whether an engine with these arguments divides a model over its accelerators: an argument says how many there
    are."""
    return any(_SPLITTING.search(argument) for argument in arguments)
