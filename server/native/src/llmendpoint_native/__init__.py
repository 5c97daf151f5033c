"""CPU kernels of llmendpoint-server, compiled for several kinds of processor.

It has one module for each, with the same functions of addresses and sizes; kernels/module.cpp has them. They share OpenMP's threads with torch, which must
be imported before.
"""

from __future__ import annotations

import importlib
from types import ModuleType

VARIANTS = {
    "amx": frozenset({"amx_tile", "amx_bf16", "avx512_bf16", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "avx512_bf16": frozenset({"avx512_bf16", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "avx2": frozenset({"avx2", "fma"}),
}
"""What a processor must have for a variant, by its names in /proc/cpuinfo; the fastest first."""


class Unavailable(ImportError):
    """No variant can be used here; the text says why."""


def load(flags: frozenset[str], variants: tuple[str, ...] = tuple(VARIANTS)) -> tuple[str, ModuleType]:
    """The fastest of `variants` that a processor with these flags runs, and its module. Raises Unavailable."""
    fitting = [variant for variant in variants if VARIANTS[variant] <= flags]
    if not fitting:
        raise Unavailable(f"the processor has none of {', '.join(variants)}")
    causes = []
    for variant in fitting:
        try:
            return variant, importlib.import_module(f"{__name__}._{variant}")
        except ImportError as error:
            causes.append(f"{variant}: {error}")
    raise Unavailable("; ".join(causes))
