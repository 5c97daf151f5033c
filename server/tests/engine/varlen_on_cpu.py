"""What torch's `varlen_attn` computes, in plain operators, for machines without CUDA."""

from __future__ import annotations

import torch


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    num_splits: int,
) -> torch.Tensor:
    """Asserts what the kernel's checks would refuse."""
    assert enable_gqa == (query.shape[1] != key.shape[2])
    assert window_size[1] == 0
    assert num_splits == 1
    return _attended(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, window_size[0], seqused_k, block_table
    )


@torch.library.custom_op("tests::varlen_attn", mutates_args=())
def _attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    scale: float,
    window: int,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
) -> torch.Tensor:
    """An operator of its own, so that a recorder sees one call of it."""
    for numbers in (cu_seq_q, cu_seq_k, seqused_k, block_table):
        assert numbers.dtype is torch.int32
        assert numbers.stride(-1) == 1
    assert len(cu_seq_q) == len(cu_seq_k) == len(block_table) + 1 == len(seqused_k) + 1
    out = torch.full((*query.shape[:2], value.shape[-1]), torch.nan, dtype=query.dtype)
    repeat = query.shape[1] // key.shape[2]
    for n, count in enumerate(seqused_k.tolist()):
        first, end = cu_seq_q[n : n + 2].tolist()
        assert end - first <= max_q
        assert count <= max_k
        pages = block_table[n, : -(-count // key.shape[1])].long()
        keys, values = (
            x[pages].flatten(0, 1)[:count].repeat_interleave(repeat, 1).transpose(0, 1) for x in (key, value)
        )
        places = torch.arange(count - (end - first), count)[:, None]
        seen = torch.arange(count)[None] <= places
        if window >= 0:
            seen &= torch.arange(count)[None] >= places - window
        scores = (query[first:end].transpose(0, 1) @ keys.transpose(1, 2)) * scale
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out[first:end] = (weights @ values).transpose(0, 1)
    return out
