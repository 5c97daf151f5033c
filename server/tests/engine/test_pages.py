"""docs/concepts/architecture.md: the weights that the CPU kernels read lie in large pages of memory, where the kernel has them."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest
import torch

from llmendpoint_server.engine import pages

MIB = 2**20


@pytest.mark.parametrize("shape", [(3,), (700, 900), (5, 1000, 1000)])
def test_a_moved_tensor_has_the_same_elements_and_large_ones_begin_at_a_large_page(
    shape: tuple[int, ...],
) -> None:
    tensor = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).transpose(0, -1)
    moved = pages.moved(tensor)
    assert torch.equal(moved, tensor)
    assert moved.is_contiguous()
    assert (moved.data_ptr() % pages.HUGE == 0) == (tensor.nbytes >= pages.SMALLEST)
    assert not pages.zeros(*shape, dtype=torch.bfloat16).any()


def test_a_kernel_without_large_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Small)
    tensor = torch.randn(1000, 1000)
    assert torch.equal(pages.moved(tensor), tensor)


def test_memory_is_given_back_with_its_tensor() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    tensor = pages.zeros(64, MIB, dtype=torch.uint8)
    before = resident()
    tensor += 1
    assert resident() - before > 60 * MIB
    del tensor
    gc.collect()
    assert resident() - before < 8 * MIB
