"""Whether a model fits, how much of it, and what would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from .accelerators import ACCELERATORS, Accelerator
from .memory import Load, draft_cache_bytes, kv_sequence_bytes, overhead_bytes, weights_bytes
from .model import SAFETENSORS_FLOATS, Model

USEFUL_CONTEXT = 1024
"""Tokens. With a shorter context a model does not count as fitting."""

STEP = 256
"""Tokens. A proposed context is rounded down to a multiple of this."""

UNKNOWN_CONTEXT = 4096
"""Tokens, if neither the spec nor the config says how long a sequence may be."""


class Outcome(StrEnum):
    """The first three serve requests; the others do not start."""

    FITS = "Fits"
    FEWER_SEQUENCES = "FitsFewerSequences"
    SHORTER_CONTEXT = "FitsShorterContext"
    CONTEXT_TOO_LONG = "ContextTooLong"
    CACHE_TOO_LARGE = "KVCacheTooLarge"
    WEIGHTS_TOO_LARGE = "WeightsTooLarge"
    QUANTIZED = "QuantizedWeights"
    NOT_DIVISIBLE = "NotDivisible"

    @property
    def serves(self) -> bool:
        """Whether the engine starts and answers."""
        return self in (Outcome.FITS, Outcome.FEWER_SEQUENCES, Outcome.SHORTER_CONTEXT)


@dataclass(frozen=True, slots=True)
class Question:
    """A model, what is asked of it, and where: `memory` bytes on each of `accelerators`, over which the engine divides
    the model. `splits`: the engine can divide it (tensor parallelism). `reads`: the quantizations that it loads; None: all.
    `draft`: the model that guesses tokens for it, whole on each accelerator."""

    model: Model
    load: Load
    memory: int
    accelerators: int = 1
    splits: bool = True
    reads: frozenset[str] | None = None
    draft: Model | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes of one accelerator, and what they hold. `context`: the tokens that were asked for. `longest`: tokens of the
    longest sequence that fits. `sequences`: how many of `context` tokens fit at once. `draft`: weights, keys and values of
    the draft model."""

    outcome: Outcome
    memory: int
    weights: int
    overhead: int
    cache: int
    context: int
    longest: int
    sequences: int
    draft: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One change that would make the model fit; the other fields are None."""

    max_model_len: int | None = None
    accelerators: int | None = None
    weight_bits: int | None = None
    kv_cache: int | None = None
    accelerator: Accelerator | None = None


def evaluate(question: Question) -> Fit:
    """The verdict on a question."""
    model, load, count = question.model, question.load, question.accelerators
    weights = -(-weights_bytes(model, load) // count)
    overhead = overhead_bytes(model, load, count)
    context = load.max_model_len or model.shape.context or UNKNOWN_CONTEXT
    room = max(question.memory - weights - overhead, 0)
    draft = _draft(question, context, room)
    room = max(room - draft, 0)
    cache = room if load.kv_cache is None else min(room, load.kv_cache)
    longest = _longest(question, cache, context)
    one = kv_sequence_bytes(model, load, context, count)
    sequences = cache // one if one else load.sequences
    outcome = _outcome(question, room, context, longest, sequences)
    return Fit(outcome, question.memory, weights, overhead, cache, context, longest, int(sequences), draft)


def _draft(question: Question, context: int, room: int) -> int:
    """Bytes of the draft model, of the `room` that the model itself leaves."""
    draft, load = question.draft, question.load
    if draft is None:
        return 0
    weights = weights_bytes(draft, load)
    return weights + draft_cache_bytes(draft, load, context, max(room - weights, 0))


def loads(model: Model, reads: frozenset[str] | None) -> bool:
    """Whether an engine can load the weights at all. `reads`: as in `Question`."""
    return reads is None or model.shape.quantization is None or model.shape.quantization in reads


def divisible(model: Model, load: Load, accelerators: int) -> bool:
    """Whether an engine can give each of so many accelerators its part of the model."""
    shape = model.shape
    if accelerators == 1 or not load.divides_evenly:
        return True
    heads = (shape.heads, *(a.split for a in shape.attention if a.expanded is None))
    return shape.quantization is None and not any(count % accelerators for count in heads)


def _outcome(question: Question, room: int, context: int, longest: int, sequences: int) -> Outcome:
    load = question.load
    models = (question.model, question.draft or question.model)
    if not all(loads(model, question.reads) for model in models):
        return Outcome.QUANTIZED
    if not divisible(question.model, load, question.accelerators):
        return Outcome.NOT_DIVISIBLE
    if _longest(question, room, context) < min(USEFUL_CONTEXT, context):
        return Outcome.WEIGHTS_TOO_LARGE
    if load.kv_cache is not None and load.kv_cache > room:
        return Outcome.CACHE_TOO_LARGE
    if longest < context and (load.max_model_len is not None or longest < min(USEFUL_CONTEXT, context)):
        return Outcome.CONTEXT_TOO_LONG
    if longest < context:
        return Outcome.SHORTER_CONTEXT
    return Outcome.FITS if sequences >= load.sequences else Outcome.FEWER_SEQUENCES


def _longest(question: Question, cache: int, context: int) -> int:
    """Tokens of the longest sequence that the cache holds, at most `context`. Found by bisection, because the cache
    grows with tokens."""
    low, high = 0, context
    while low < high:
        middle = (low + high + 1) // 2
        if kv_sequence_bytes(question.model, question.load, middle, question.accelerators) <= cache:
            low = middle
        else:
            high = middle - 1
    return low


def what_would_fit(question: Question, kind: str | None = None) -> tuple[Change, ...]:
    """Changes that each make the model serve by themselves, the smallest first; empty if it serves already. `kind`: the
    resource name of accelerators that may be proposed."""
    if evaluate(question).outcome.serves:
        return ()
    candidates = (
        _shorter(question), _smaller_cache(question), _split(question), _quantized(question), _larger(question, kind)
    )  # fmt: skip
    return tuple(change for change in candidates if change is not None)


def changed(question: Question, change: Change) -> Question:
    """The question with the change made."""
    load, model = question.load, question.model
    if change.max_model_len is not None:
        load = replace(load, max_model_len=change.max_model_len)
    if change.kv_cache is not None:
        load = replace(load, kv_cache=change.kv_cache)
    if change.weight_bits is not None:
        model = quantized(model, change.weight_bits)
    return replace(
        question,
        model=model,
        load=load,
        accelerators=change.accelerators or question.accelerators,
        memory=change.accelerator.memory if change.accelerator else question.memory,
    )


def quantized(model: Model, bits: int) -> Model:
    """The same model with weights of `bits` bits: half a bit more for scales; embeddings and output stay as they are."""
    shape, floats = model.shape, 0
    kept = {}
    for dtype, size in model.weights.items():
        if dtype in SAFETENSORS_FLOATS:
            floats += size * 2 // (4 if dtype == "F32" else 8 if dtype == "F64" else 2)
        else:
            kept[dtype] = size
    whole = min(2 * 2 * shape.vocabulary * shape.hidden, floats)
    packed = int((floats - whole) * (bits + 0.5) / 16)
    return Model(
        replace(shape, quantization=f"{bits} bits"), {**kept, "BF16": whole, "U8": kept.get("U8", 0) + packed}
    )


def _shorter(question: Question) -> Change | None:
    longest = evaluate(question).longest // STEP * STEP
    return _if_serves(question, Change(max_model_len=longest)) if longest else None


def _smaller_cache(question: Question) -> Change | None:
    load = question.load
    if load.kv_cache is None:
        return None
    room = evaluate(replace(question, load=replace(load, kv_cache=None))).cache
    return _if_serves(question, Change(kv_cache=room)) if room < load.kv_cache else None


def _split(question: Question) -> Change | None:
    """The smallest sufficient number of accelerators: a power of two which divides the number of query heads."""
    if not question.splits:
        return None
    counts = (n for n in (2, 4, 8, 16) if n > question.accelerators and question.model.shape.heads % n == 0)
    return _first(question, (Change(accelerators=n) for n in counts))


def _quantized(question: Question) -> Change | None:
    if question.model.shape.quantization is not None:
        return None
    return _first(question, (Change(weight_bits=bits) for bits in (8, 4)))


def _larger(question: Question, kind: str | None) -> Change | None:
    larger = (a for a in ACCELERATORS if a.kind == kind and a.memory > question.memory)
    return _first(question, (Change(accelerator=a) for a in sorted(larger, key=lambda a: a.memory)))


def _first(question: Question, changes: Iterator[Change]) -> Change | None:
    return next((change for change in changes if _if_serves(question, change)), None)


def _if_serves(question: Question, change: Change) -> Change | None:
    return change if evaluate(changed(question, change)).outcome.serves else None
