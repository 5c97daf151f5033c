"""Where kernels of few rows pay: measured once at load, because it differs from one GPU to the next."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from llmendpoint_server.engine.operators import Scale
from llmendpoint_server.engine.triton.operators import MOST_FEW_ROWS, TritonOperators, Weights

_SIZE, _COUNT = 2048, 16
"""Inputs and outputs of a layer; and how many layers in a row, whose weights are together more than the cache of a GPU holds."""
_TOLERANCE = 4e-2
"""Of a chain of layers, between bfloat16 and itself when it is rounded at other places."""
_ABLE_TO_WAIT = (9, 0)
"""The least compute capability with which a kernel may begin before the one before it has ended."""
Layer = Callable[[torch.Tensor, Weights], torch.Tensor]


class Trial:
    """A chain of layers, each a norm, a product and a sum, as graphs on the device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        random = torch.Generator(device).manual_seed(0)
        self._weights = [
            Weights((torch.randn(_SIZE, _SIZE, generator=random, device=device) / _SIZE**0.5).to(dtype), None)
            for _ in range(_COUNT)
        ]
        self._x = torch.randn(MOST_FEW_ROWS, _SIZE, generator=random, device=device).to(dtype)
        self._scale = Scale(torch.ones(_SIZE, device=device), 1e-6)

    def of_few(self, operators: TritonOperators, rows: int) -> tuple[float, torch.Tensor]:
        """Milliseconds, and the result."""
        return self._timed(rows, lambda x, weights: operators.few(x, weights, self._scale, x))

    def of_torch(self, operators: TritonOperators, rows: int) -> tuple[float, torch.Tensor]:
        def layer(x: torch.Tensor, weights: Weights) -> torch.Tensor:
            return nn.functional.linear(operators.norm(x, self._scale), weights.weight) + x

        return self._timed(rows, layer)

    def _timed(self, rows: int, layer: Layer) -> tuple[float, torch.Tensor]:
        def work() -> torch.Tensor:
            x = self._x[:rows]
            for weights in self._weights:
                x = layer(x, weights)
            return x

        aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch publishes no type
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            work()  # compiles
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work()
        times = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch publishes no type
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times), result.clone()


def best(device: torch.device, dtype: torch.dtype) -> TritonOperators:
    """Operators with the most rows for which the kernel is no slower than torch's, and that ask for weights ahead if that is faster."""
    trial, plain = Trial(device, dtype), TritonOperators(device, dtype)
    found = TritonOperators(device, dtype, ahead=_ahead_pays(trial, plain, device, dtype))
    rows, few_rows = 1, 0
    while rows <= MOST_FEW_ROWS and _faster(trial.of_few(found, rows), *trial.of_torch(plain, rows)):
        rows, few_rows = 2 * rows, rows
    return TritonOperators(device, dtype, few_rows, found.ahead)


def _ahead_pays(trial: Trial, plain: TritonOperators, device: torch.device, dtype: torch.dtype) -> bool:
    if torch.cuda.get_device_capability(device) < _ABLE_TO_WAIT:
        return False
    try:
        ahead = trial.of_few(TritonOperators(device, dtype, ahead=True), 1)
    except (
        RuntimeError
    ):  # a version of Triton or of the driver that cannot; of a broken device the next kernel says so
        return False
    return _faster(ahead, *trial.of_few(plain, 1))


def _faster(ours: tuple[float, torch.Tensor], times: float, exact: torch.Tensor) -> bool:
    """Whether it takes no longer, and gives the same."""
    apart = (ours[1].float() - exact.float()).square().mean().sqrt() / exact.float().std()
    return ours[0] <= times and bool(apart <= _TOLERANCE)
