"""What this machine can do at most: reading memory, multiplying, and so decoding."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tests.bench.engine.shapes import Shape, Work

REPEATS = 7


@dataclass(frozen=True)
class Machine:
    """`bandwidth`: bytes/s. `flops`: operations/s in `dtype`."""

    bandwidth: float
    flops: float
    dtype: torch.dtype

    def best(self, other: Machine) -> Machine:
        """Of two measurements, as a busy neighbour makes each of them too low."""
        return replace(
            self, bandwidth=max(self.bandwidth, other.bandwidth), flops=max(self.flops, other.flops)
        )

    def tokens_per_second(self, shape: Shape, work: Work) -> float:
        """Most that decoding can reach: a step reads the weights and the mean context once, and each token costs two
        operations per parameter."""
        size = self.dtype.itemsize
        context = shape.context_bytes(work.count * (work.tokens_in + work.tokens_out / 2), size)
        reading = (shape.parameters * size + context) / self.bandwidth
        multiplying = 2 * shape.parameters * work.count / self.flops
        return work.count / max(reading, multiplying)


def measure(shape: Shape, dtype: torch.dtype) -> Machine:
    """The fastest of several ways to read as many bytes as the weights have, and of two products of matrices. No single
    way is the fastest everywhere: a sum can take as long to add as to read, a product with a vector in bf16 to widen."""
    rows = shape.parameters // 4096
    weights = torch.ones(rows, 4096, dtype=dtype)
    vector = torch.ones(4096, dtype=dtype)
    whole = weights.view(-1).view(torch.float32)
    ways = (whole.sum, lambda: torch.dot(whole, whole), whole.amax, lambda: weights @ vector)
    bandwidth = weights.nbytes / min(_fastest(way) for way in ways)
    flops = 0.0
    for width in (1024, 2048):
        left, right = (torch.randn(width, width).to(dtype) for _ in range(2))
        flops = max(flops, 2 * width**3 / _fastest(lambda a=left, b=right: a @ b))  # type: ignore[misc]
    return Machine(bandwidth, flops, dtype)


def _fastest(work: Callable[[], object]) -> float:
    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(seconds() for _ in range(REPEATS))
