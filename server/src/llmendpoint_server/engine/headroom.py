"""How much memory of a CUDA device the KV cache may have: what the largest steps and the graphs leave.

It is measured before the cache is made.
"""

from __future__ import annotations

import gc

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.errors import BadConfiguration

GRAPH_BYTES = 4 * 2**20
"""Of each graph, beside the memory that all graphs share."""
FRAGMENTS = 512 * 2**20
"""Left for what the allocator cannot use, and for what libraries allocate later."""


def largest_batches(rows: int, tokens: int, longest: int, page_size: int) -> tuple[Batch, Batch]:
    """The steps that take most memory, all of their pages page 0: one in which as many rows as may be draw a token, and one that
    computes the last tokens of the longest sequence."""
    each = min(tokens // rows, longest)
    many = tuple(_row(str(n), 0, each, page_size) for n in range(rows))
    last = min(tokens, longest)
    return Batch(many, 0.0), Batch((_row("long", longest - last, last, page_size),), 0.0)


def _row(name: str, start: int, count: int, page_size: int) -> Scheduled:
    end = start + count
    request = Request(name, (0,), SamplingParams(1, temperature=1.0, top_p=0.9, top_k=50))
    return Scheduled(Sequence(request, 0, [0] * end, [], table=[0] * -(-end // page_size)), start, count)


def release() -> None:
    """Give the device back what no tensor holds."""
    gc.collect()
    torch.cuda.empty_cache()


class Headroom:
    """What of a CUDA device's memory steps leave, from `begin` on. On CPU nothing is measured."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._held = 0

    def begin(self) -> None:
        if self.device.type != "cuda":
            return
        release()
        self._held = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def left(self, graphs: int) -> int:
        """Bytes, with `graphs` graphs to come."""
        peak = torch.cuda.max_memory_allocated(self.device) - self._held
        release()
        # A graph keeps its own temporary memory: at most what the same rows take in a step without a graph, and so at most the peak.
        shared = peak if graphs else 0
        free = int(torch.cuda.mem_get_info(self.device)[0])
        return max(0, free - peak - shared - graphs * GRAPH_BYTES - FRAGMENTS)


def free_for_cache(
    runner: ModelRunner, limits: tuple[int, int, int], page_size: int, graphs: int, device: torch.device
) -> int:
    """Bytes. `runner`: with a page that may be written. `limits`: the most rows, tokens of a step, and tokens of a sequence.
    `graphs`: how many there will be. Raises BadConfiguration if the largest step does not fit."""
    headroom = Headroom(device)
    headroom.begin()
    try:
        for batch in largest_batches(*limits, page_size):
            runner.run(batch)
    except torch.OutOfMemoryError as error:
        raise BadConfiguration(
            f"The largest step, of {limits[1]} tokens in {limits[0]} sequences of up to {limits[2]}, does not fit in the "
            "device's memory beside the weights: set --max-num-batched-tokens, --max-num-seqs or --max-model-len lower."
        ) from error
    return headroom.left(graphs)
