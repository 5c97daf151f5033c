"""Refuses, at load, a model that would give wrong text.

Some architectures never use the attention interface, some use it in a part of their layers, some keep state of their
own. All of them run, and give wrong text without an error. So a model is served only if a packed batch of three
sequences, prefilled and decoded through our pages, gives the logits of its own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.attention.watched import Watched
from llmendpoint_server.engine.formats.groups import UnsupportedWeights
from llmendpoint_server.engine.formats.layer import Format
from llmendpoint_server.engine.formats.recognition import format_of
from llmendpoint_server.engine.forward import forward, route_through_pages
from llmendpoint_server.engine.loading import CausalLM, text_config
from llmendpoint_server.errors import UnsupportedArchitecture

SUPPORTED = (
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt2", "phi3",
    "cohere2", "gpt_oss", "deepseek_v3", "granite", "olmo2", "glm4", "smollm3", "opt",
)  # fmt: skip
LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
BATCH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 0.15}
"""Largest root-mean-square difference of a position's logits, as a share of their spread. Wrong attention gives 0.3 or more."""
QUANTIZED_TOLERANCE = {"int8": 0.15, "int4": 0.7}
"""Between the logits of the model as it is and those of its quantized weights."""
KV_TOLERANCE = 0.2
"""Between the logits with pages of eight bits and those with whole ones."""
_LENGTHS = (21, 30, 38)
"""Ascending, the order of a `Step`. Of the prefilled positions most must be within the tolerance, and of the decoded ones too. One alone says nothing: rounding may send a token to
another expert, which gives other logits. Sequences that see each other would make at least two wrong."""


def refuse_by_config(architecture: str, config: Any) -> Format | None:
    """The format of quantized weights. Refuses what the configuration shows: a format that is not read, layers that are not
    attention, position embeddings that depend on the batch."""
    try:
        form = format_of(config)
    except UnsupportedWeights as error:
        raise UnsupportedArchitecture(architecture, f"its weights {error}", SUPPORTED) from error
    text = text_config(config)
    other = sorted(set(getattr(text, "layer_types", None) or ()) - LAYER_TYPES)
    if other:
        raise UnsupportedArchitecture(
            architecture, f"it has layers of the kind {', '.join(other)}", SUPPORTED
        )
    kinds = _rope_types(getattr(text, "rope_parameters", None)) & BATCH_DEPENDENT_ROPE
    if kinds:
        why = f"its rotary embedding ({', '.join(sorted(kinds))}) changes with the longest sequence in the batch"
        raise UnsupportedArchitecture(architecture, why, SUPPORTED)
    return form


def _rope_types(parameters: Any) -> set[str]:
    """`rope_parameters` holds one set of parameters, or one for each kind of layer."""
    if not isinstance(parameters, dict):
        return set()
    found = {parameters["rope_type"]} if isinstance(parameters.get("rope_type"), str) else set()
    return found.union(*(_rope_types(value) for value in parameters.values()))


def probe_prompts(vocab_size: int, lengths: tuple[int, ...] = _LENGTHS) -> list[list[int]]:
    """Token ids that are spread over the vocabulary and do not repeat nearby."""
    return [
        [1 + (7919 * (17 * row + place + 1)) % (vocab_size - 1) for place in range(length)]
        for row, length in enumerate(lengths)
    ]


def reference_logits(model: CausalLM, prompts: list[list[int]], device: torch.device) -> torch.Tensor:
    """The model's own forward, one sequence at a time: logits of the last two positions `[2 * sequences, vocab]`."""
    with torch.inference_mode():
        rows = [
            model(input_ids=torch.tensor([prompt], device=device), use_cache=False).logits[0, -2:]
            for prompt in prompts
        ]
    return torch.stack([row[place] for place in (0, 1) for row in rows])


def paged_logits(
    model: CausalLM, prompts: list[list[int]], make_backend: Callable[[int], Backend]
) -> tuple[torch.Tensor, Watched]:
    """The same logits from one packed prefill and one packed decode through pages. The calls are those of the decode."""
    sequences = [
        Sequence(Request(str(n), tuple(prompt), SamplingParams(1)), 0, list(prompt), [])
        for n, prompt in enumerate(prompts)
    ]
    backend = Watched(make_backend(len(prompts) * -(-max(map(len, prompts)) // PAGE_SIZE)))
    pages = [-(-len(prompt) // backend.cache.page_size) for prompt in prompts]
    for n, sequence in enumerate(sequences):
        # Every other page, so that a sequence's pages are not adjacent.
        sequence.table = list(range(n, n + len(prompts) * pages[n], len(prompts)))
    logits = []
    for prefill in (True, False):
        rows = []
        for sequence, prompt in zip(sequences, prompts, strict=True):
            rows.append(
                Scheduled(sequence, 0 if prefill else len(prompt) - 1, len(prompt) - 1 if prefill else 1)
            )
        step = backend.prepare(Batch(tuple(rows), 0.0))
        ends = [row.count for row in rows]
        step.logit_rows = torch.tensor([sum(ends[: n + 1]) - 1 for n in range(len(ends))], device=step.device)
        logits.append(forward(model, backend, step))
        if prefill:
            backend.calls.clear()
    return torch.cat(logits), backend


def open_to_pages(architecture: str, model: CausalLM) -> None:
    """Raises UnsupportedArchitecture for a model without the attention interface."""
    try:
        route_through_pages(model)
    except (ValueError, AttributeError) as error:
        why = "transformers gives it no attention interface"
        raise UnsupportedArchitecture(architecture, why, SUPPORTED) from error


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Root-mean-square difference as a share of the reference's spread; infinite for another shape or a NaN."""
    if ours.shape != theirs.shape or not bool(ours.isfinite().all()):
        return float("inf")
    spread = theirs.float().std().clamp_min(1e-6)
    return float((ours.float() - theirs.float()).square().mean().sqrt() / spread)


def worst_median(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The median `difference` of the prefilled positions, or of the decoded ones if that is larger. Both halves of `[2 * sequences, vocab]`.
    Infinite if any logit is not finite."""
    if ours.shape != theirs.shape or not bool(ours.isfinite().all()):
        return float("inf")
    halves = (zip(a, b, strict=True) for a, b in zip(ours.chunk(2), theirs.chunk(2), strict=True))
    return max(median(difference(one, other) for one, other in half) for half in halves)


def check_pages(
    architecture: str,
    model: CausalLM,
    expected: torch.Tensor,
    prompts: list[list[int]],
    make_backend: Callable[[int], Backend],
    tolerance: float,
) -> Watched:
    """Raises UnsupportedArchitecture unless every layer attends once per step and the logits are close to `expected`.

    Returns the probe, whose cache and rules are those that the model's layers need.
    """
    try:
        logits, backend = paged_logits(model, prompts, make_backend)
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
        why = f"a packed batch through the attention interface fails ({type(error).__name__}: {error})"
        raise UnsupportedArchitecture(architecture, why, SUPPORTED) from error
    layers = int(text_config(model.config).num_hidden_layers)
    if backend.calls != dict.fromkeys(range(layers), 1):
        why = (
            f"{len(backend.calls)} of its {layers} layers attend through the attention interface once a step"
        )
        raise UnsupportedArchitecture(architecture, why, SUPPORTED)
    error_share = worst_median(logits, expected)
    if error_share > tolerance:
        why = f"a packed batch gives other logits than its own forward (off by {error_share:.2g} of their spread)"
        raise UnsupportedArchitecture(architecture, why, SUPPORTED)
    return backend
