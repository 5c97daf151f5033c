"""Memory in pages of 2 MB, where the kernel has them: a stream of weights then needs few address translations.

Linux gives them to a mapping that asks, if /sys/kernel/mm/transparent_hugepage/enabled is `madvise` or `always`. Where it does not, the
memory is in pages of 4 KB, and everything else is the same.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import torch

HUGE = 2 * 2**20
SMALLEST = HUGE // 2
"""Bytes below which the rest of a page would be too much to lose."""


def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """As `torch.zeros`, on CPU. The pages are taken when they are first written."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < SMALLEST:
        return torch.zeros(shape, dtype=dtype)
    # A mapping begins at any page of 4 KB: one more huge page, of which nothing is written before the first whole one.
    room = mmap.mmap(-1, -(-size // HUGE) * HUGE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    start = torch.frombuffer(room, dtype=torch.uint8, count=1).data_ptr()
    return torch.frombuffer(room, dtype=dtype, count=count, offset=-start % HUGE).view(shape)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of a tensor on CPU, or the tensor itself if it is small."""
    if tensor.nbytes < SMALLEST:
        return tensor.contiguous()
    return zeros(*tensor.shape, dtype=tensor.dtype).copy_(tensor)
