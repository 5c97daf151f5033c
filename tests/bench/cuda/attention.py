"""The decode and prefill kernels beside the device's limits, in the shapes of Qwen3-0.6B and of a Llama 3 8B."""

from __future__ import annotations

from functools import partial

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Rules, States
from llmendpoint_server.engine.attention.triton import Triton
from tests.bench.cuda.device import CUDA, Limits, in_graph, seconds


def _states(heads: tuple[int, int], tokens: int, dim: int) -> States:
    return States(
        *(
            torch.randn(1, n, tokens, dim, device=CUDA, dtype=torch.bfloat16)
            for n in (heads[0], heads[1], heads[1])
        )
    )


def _sequences(rows: int, length: int) -> list[Sequence]:
    each = -(-length // 16)
    order = torch.randperm(rows * each).tolist()
    return [
        Sequence(
            Request(str(n), (0,), SamplingParams(1)),
            0,
            [0] * length,
            [],
            table=order[n * each : (n + 1) * each],
        )
        for n in range(rows)
    ]


def decode(limits: Limits, heads: tuple[int, int], dim: int, rows: int, length: int) -> tuple[float, float]:
    """Microseconds of one layer's step, and the share of the device's bandwidth. Caches of several layers in turn, so that none
    lies in the processor's own."""
    backend = partial(Triton, device=CUDA, dtype=torch.bfloat16)(rows * -(-length // 16))
    layers = max(2, min(16, int(2**28 / (rows * length * heads[1] * dim * 4)) + 2))
    step = backend.prepare(
        Batch(tuple(Scheduled(one, length - 1, 1) for one in _sequences(rows, length)), 0.0)
    )
    states, rules = _states(heads, rows, dim), Rules(dim**-0.5, None, None, None)

    def work() -> None:
        for layer in range(layers):
            backend.attend(step, layer, *states, rules)

    work()
    for layer in backend.cache.layers.values():
        layer.keys.normal_()
        layer.values.normal_()
    took = in_graph(work, 5) / layers
    read = rows * length * heads[1] * dim * 4
    return took * 1e6, read / took / limits.bytes_per_s


def prefill(limits: Limits, heads: tuple[int, int], dim: int, rows: int, length: int) -> tuple[float, float]:
    """Microseconds of one layer's step, and the share of the device's operations: only those below the diagonal count."""
    backend = partial(Triton, device=CUDA, dtype=torch.bfloat16)(rows * -(-length // 16))
    step = backend.prepare(Batch(tuple(Scheduled(one, 0, length) for one in _sequences(rows, length)), 0.0))
    states, rules = _states(heads, rows * length, dim), Rules(dim**-0.5, None, None, None)
    took = seconds(lambda: backend.attend(step, 0, *states, rules), 10)
    operations = rows * heads[0] * dim * 2 * length * length
    return took * 1e6, operations / took / limits.operations_per_s


def main(limits: Limits) -> None:
    print("attention: heads dim rows length -> us a layer, share of the limit")
    for heads, dim in (((16, 8), 128), ((32, 8), 128)):
        for rows, length in ((1, 850), (1, 8192), (8, 850), (64, 850), (256, 850), (256, 1500)):
            took, share = decode(limits, heads, dim, rows, length)
            print(f"decode  {heads} {dim} {rows:4} {length:6} {took:9.1f} us {share:6.1%}", flush=True)
        for rows, length in ((1, 2048), (1, 8192), (16, 512)):
            took, share = prefill(limits, heads, dim, rows, length)
            print(f"prefill {heads} {dim} {rows:4} {length:6} {took:9.1f} us {share:6.1%}", flush=True)
        torch.cuda.empty_cache()
