"""Figures and verdicts in words."""

from __future__ import annotations

from .memory import OVERHEAD_SHARE
from .verdict import Change, Fit, Outcome

__all__ = ["OVERHEAD_SHARE", "QUANTIZED", "change_text", "fit_text", "gb"]

QUANTIZED = (
    "the weights are quantized in a way that this runtime does not load: take another runtime, a checkpoint of GPTQ, AWQ, "
    "compressed-tensors, FP8 or GGUF, or the one that is not quantized"
)

NOT_DIVISIBLE = (
    "the number of accelerators does not divide the number of heads and of key heads, or the weights are quantized: take a number "
    "that divides both, and a checkpoint that is not quantized"
)


def gb(size: int) -> str:
    """`16.4 GB`: 10^9 bytes, as data sheets and disks count."""
    return f"{size / 1e9:,.1f} GB"


def fit_text(fit: Fit, wanted_sequences: int) -> str:
    """The verdict in a sentence, with the figures behind it."""
    draft = f" + draft model {gb(fit.draft)}" if fit.draft else ""
    needs = f"weights {gb(fit.weights)} + overhead {gb(fit.overhead)}{draft}"
    having = f"of {gb(fit.memory)}"
    cache = f"{gb(fit.cache)} are left for keys and values"
    held = f"{fit.sequences:,} sequences of {fit.context:,} tokens"
    match fit.outcome:
        case Outcome.FITS:
            return f"{needs} {having}; {cache}: all {wanted_sequences:,} sequences of {fit.context:,} tokens at once"
        case Outcome.FEWER_SEQUENCES:
            return f"{needs} {having}; {cache}: {held} at once, more of them only when they are shorter (asked for {wanted_sequences:,})"
        case Outcome.SHORTER_CONTEXT:
            return (
                f"{needs} {having}; {cache}: one sequence of at most {fit.longest:,} tokens, the model is made for "
                f"{fit.context:,}"
            )
        case Outcome.CONTEXT_TOO_LONG:
            return f"{needs} {having}; {cache}: one sequence of at most {fit.longest:,} tokens, asked for are {fit.context:,}"
        case Outcome.CACHE_TOO_LARGE:
            return f"{needs} {having}; no room for the key and value cache that engine.kvCacheMemory asks for"
        case Outcome.WEIGHTS_TOO_LARGE:
            return f"{needs} {having}: too large"
        case Outcome.QUANTIZED:
            return QUANTIZED
        case Outcome.NOT_DIVISIBLE:
            return NOT_DIVISIBLE


def change_text(change: Change) -> str:
    """What to change, in the words of the spec."""
    if change.max_model_len is not None:
        return f"engine.maxModelLen {change.max_model_len}"
    if change.kv_cache is not None:
        return f"engine.kvCacheMemory {change.kv_cache // 2**20}Mi"
    if change.accelerators is not None:
        return f"resources.accelerator.count {change.accelerators} with an engine that divides the model (tensor parallelism)"
    if change.weight_bits is not None:
        return f"a checkpoint quantized to {change.weight_bits} bits"
    if change.accelerator is not None:
        return f"{change.accelerator.title} ({gb(change.accelerator.memory)})"
    return ""
