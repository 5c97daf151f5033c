"""A backend's results beside those of the reference, for random numbers in the shapes of a model's layers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.cache import LayerCache

LENGTHS = (39, 300)
"""Of two sequences; the second one has several pages in each backend."""
TOLERANCE = 2e-2
"""The largest root-mean-square difference of a step, as a share of its spread: what 16 bits round."""


def fails(
    make: Callable[[int], Backend],
    make_reference: Callable[[int], Backend],
    layers: tuple[LayerCache, ...],
    rules: tuple[Rules, ...],
) -> str | None:
    """Why `make`'s backend is not to serve: it raised, or computes something else. None if neither."""
    tried = set()
    for layer, rule in zip(layers, rules, strict=True):
        shape = layer.kv_heads, layer.key_dim, layer.value_dim, rule.sliding_window, rule.softcap, rule.plain
        if shape in tried:
            continue
        tried.add(shape)
        try:
            ours, theirs = (_attended(one, layer, rule) for one in (make, make_reference))
        except torch.AcceleratorError:
            raise
        except Exception as error:  # any: it is not to serve, and another one can
            return f"it raised {type(error).__name__}: {error}"
        apart = float((ours - theirs).square().mean().sqrt() / theirs.std().clamp_min(1e-6))
        if not apart <= TOLERANCE:
            return f"it differs from the reference by {apart:.2g} of the results' spread"
    return None


def _attended(make: Callable[[int], Backend], layer: LayerCache, rules: Rules) -> torch.Tensor:
    """All positions of both sequences, float32: a chunk of each, another chunk of each, and a decode of each."""
    size = make(1).cache.page_size
    counts = [-(-length // size) for length in LENGTHS]
    backend = make(sum(counts))
    pages = iter(range(sum(counts) - 1, -1, -1))  # the last page first
    sequences = [
        Sequence(
            Request(str(n), (0,), SamplingParams(1)),
            0,
            [0] * length,
            [],
            table=[next(pages) for _ in range(count)],
        )
        for n, (length, count) in enumerate(zip(LENGTHS, counts, strict=True))
    ]
    random = torch.Generator().manual_seed(0)
    heads = layer.kv_heads * 2 if rules.sinks is None else len(rules.sinks)
    parts = []
    for span in (lambda n: (0, n // 2), lambda n: (n // 2, n - 1 - n // 2), lambda n: (n - 1, 1)):
        batch = Batch(tuple(Scheduled(one, *span(len(one.tokens))) for one in sequences), 0.0)
        shapes = (heads, layer.key_dim), (layer.kv_heads, layer.key_dim), (layer.kv_heads, layer.value_dim)
        query, key, value = (
            torch.randn(1, count, batch.tokens, dim, generator=random).to(layer.keys) for count, dim in shapes
        )
        with torch.inference_mode():
            parts.append(backend.attend(backend.prepare(batch), 0, query, key, value, rules).float())
    return torch.cat(parts)
