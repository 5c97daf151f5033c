"""What the device itself can do: the limits that everything else is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

CUDA = torch.device("cuda")


@dataclass(frozen=True)
class Limits:
    """Bytes a second that are read from the device's memory, and bfloat16 operations a second of a large matrix product."""

    bytes_per_s: float
    operations_per_s: float


def seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """The median time of `work` on the device."""
    for _ in range(3):
        work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for mark in marks[:-1]:
        mark.record()
        work()
    marks[-1].record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in pairwise(marks))
    return times[len(times) // 2] / 1000


def in_graph(work: Callable[[], object], times: int = 20) -> float:
    """The time of `work` as a part of a CUDA graph, where no launch is waited for."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return seconds(graph.replay, 10) / times


def limits() -> Limits:
    """A copy of 4 GiB, its bytes counted as read and as written. Products of random numbers, of 8192 x 8192 matrices."""
    return Limits(_bytes_per_s(), _operations_per_s())


def _bytes_per_s() -> float:
    numbers = torch.ones(2**31, dtype=torch.bfloat16, device=CUDA)
    out = torch.empty_like(numbers)
    return 2 * numbers.nbytes / seconds(lambda: out.copy_(numbers))


def _operations_per_s() -> float:
    a, b = (torch.randn(8192, 8192, device=CUDA, dtype=torch.bfloat16) for _ in range(2))
    return float(2 * 8192**3 / seconds(lambda: a @ b))
