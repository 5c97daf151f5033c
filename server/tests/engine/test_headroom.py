"""docs/concepts/architecture.md: on CUDA the KV cache gets what the largest steps and the graphs leave.

The device's figures stand in for a device.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmendpoint_server.core.batch import Batch
from llmendpoint_server.engine.headroom import FRAGMENTS, GRAPH_BYTES, free_for_cache
from llmendpoint_server.errors import BadConfiguration

CUDA = torch.device("cuda")
GIB = 2**30
LIMITS = (4, 64, 128)


class Device:
    """Holds weights; a step takes more for a while."""

    def __init__(self, free: int, step: int) -> None:
        self.free, self.weights, self.step = free, 3 * GIB, step
        self.peak = 20 * GIB  # of the load
        self.tokens: list[int] = []

    def run(self, batch: Batch) -> None:
        if self.step > self.free:
            raise torch.OutOfMemoryError("out of memory")
        self.tokens.append(batch.tokens)
        self.peak = max(self.peak, self.weights + self.step)

    def reset(self, _: Any) -> None:
        self.peak = self.weights


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device(*request.param)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: made.weights)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", made.reset)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: made.peak)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (made.free, 80 * GIB))
    return made


@pytest.mark.parametrize("device", [(50 * GIB, 2 * GIB)], indirect=True)
@pytest.mark.parametrize(
    ("graphs", "left"),
    [(0, 48 * GIB - FRAGMENTS), (10, 46 * GIB - FRAGMENTS - 10 * GRAPH_BYTES)],
)
def test_the_cache_gets_what_the_largest_steps_and_the_graphs_leave(
    graphs: int, left: int, device: Device
) -> None:
    assert free_for_cache(device, LIMITS, 16, graphs, CUDA) == left  # type: ignore[arg-type]  # its `run` is used
    assert device.tokens == [64, 64]


@pytest.mark.parametrize("device", [(3 * GIB, 2 * GIB)], indirect=True)
def test_a_device_that_has_no_room_beside_the_steps_leaves_nothing(device: Device) -> None:
    assert free_for_cache(device, LIMITS, 16, 10, CUDA) == 0  # type: ignore[arg-type]  # its `run` is used


@pytest.mark.parametrize("device", [(1 * GIB, 2 * GIB)], indirect=True)
def test_a_largest_step_that_does_not_fit_is_a_bad_configuration(device: Device) -> None:
    with pytest.raises(BadConfiguration, match="of 64 tokens in 4 sequences of up to 128"):
        free_for_cache(device, LIMITS, 16, 0, CUDA)  # type: ignore[arg-type]  # its `run` is used
