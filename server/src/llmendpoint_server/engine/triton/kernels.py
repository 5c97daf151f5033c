"""The kernels. All compute in float32, and round once when they store.

Their parameters have no types, because Triton would read those. `block`s are powers of 2, at least as large as what they cover. Tensors are contiguous. `ahead`: the
kernel is launched before the one before it has ended, and waits for it at its begin.
"""

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def follow(ahead: tl.constexpr):
    """Let the next kernel be launched, and wait for the one before."""
    if ahead:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()


@triton.jit
def norm(x, weight, out, dim, eps, ahead: tl.constexpr, block: tl.constexpr):
    """Root-mean-square norm of a row."""
    follow(ahead)
    row = tl.program_id(0).to(tl.int64) * dim
    place = tl.arange(0, block)
    inside = place < dim
    values = tl.load(x + row + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + place, mask=inside, other=0.0)
    factor = tl.rsqrt(tl.sum(values * values, 0) / dim + eps)
    tl.store(out + row + place, (values * factor * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_norm(x, residual, weight, added, out, dim, eps, ahead: tl.constexpr, block: tl.constexpr):
    """`added`: the sum of two rows. `out`: the norm of the sum, as it was rounded."""
    follow(ahead)
    row = tl.program_id(0).to(tl.int64) * dim
    place = tl.arange(0, block)
    inside = place < dim
    values = tl.load(x + row + place, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(residual + row + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + place, mask=inside, other=0.0)
    rounded = values.to(added.dtype.element_ty)
    tl.store(added + row + place, rounded, mask=inside)
    values = rounded.to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, 0) / dim + eps)
    tl.store(out + row + place, (values * factor * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotate(
    qkv, cos, sin, query_weight, key_weight, query_eps, key_eps,
    width,
    queries: tl.constexpr, keys: tl.constexpr, dim: tl.constexpr, rotary: tl.constexpr,
    normed: tl.constexpr, ahead: tl.constexpr, heads_block: tl.constexpr, half_block: tl.constexpr, rest_block: tl.constexpr,
):  # fmt: skip
    """Some heads of one token: the norm of each, and the rotary embedding of its first `rotary` numbers, whose halves are pairs. `width`: of a
    token's row."""
    follow(ahead)
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * heads_block + tl.arange(0, heads_block)
    half: tl.constexpr = rotary // 2
    place = tl.arange(0, half_block)
    turned = place < half
    here = head[:, None] < queries + keys
    start = qkv + token * width + head[:, None] * dim
    inside = here & turned[None, :]
    first = tl.load(start + place[None, :], mask=inside, other=0.0).to(tl.float32)
    second = tl.load(start + half + place[None, :], mask=inside, other=0.0).to(tl.float32)
    if normed:
        is_query = head[:, None] < queries
        total = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        other = rotary + tl.arange(0, rest_block)
        beyond = here & (other < dim)[None, :]
        if rotary < dim:
            rest = tl.load(start + other[None, :], mask=beyond, other=0.0).to(tl.float32)
            total += tl.sum(rest * rest, 1)
        eps = tl.where(head < queries, query_eps, key_eps)
        factor = tl.rsqrt(total / dim + eps)[:, None]
        of_query = tl.load(query_weight + place, mask=turned, other=0.0)[None, :]
        of_key = tl.load(key_weight + place, mask=turned, other=0.0)[None, :]
        first *= factor * tl.where(is_query, of_query, of_key)
        of_query = tl.load(query_weight + half + place, mask=turned, other=0.0)[None, :]
        of_key = tl.load(key_weight + half + place, mask=turned, other=0.0)[None, :]
        second *= factor * tl.where(is_query, of_query, of_key)
        if rotary < dim:
            of_query = tl.load(query_weight + other, mask=other < dim, other=0.0)[None, :]
            of_key = tl.load(key_weight + other, mask=other < dim, other=0.0)[None, :]
            rest *= factor * tl.where(is_query, of_query, of_key)
            tl.store(start + other[None, :], rest.to(qkv.dtype.element_ty), mask=beyond)
    angle = token * rotary + place
    cos_first = tl.load(cos + angle, mask=turned, other=0.0).to(tl.float32)[None, :]
    sin_first = tl.load(sin + angle, mask=turned, other=0.0).to(tl.float32)[None, :]
    cos_second = tl.load(cos + angle + half, mask=turned, other=0.0).to(tl.float32)[None, :]
    sin_second = tl.load(sin + angle + half, mask=turned, other=0.0).to(tl.float32)[None, :]
    low = first * cos_first - second * sin_first
    high = second * cos_second + first * sin_second
    tl.store(start + place[None, :], low.to(qkv.dtype.element_ty), mask=inside)
    tl.store(start + half + place[None, :], high.to(qkv.dtype.element_ty), mask=inside)


@triton.jit
def opened(x, silu: tl.constexpr):
    """What a gate makes of `x`, in float32: `silu`, or `gelu` by `tanh`."""
    # 0.5 * x * (1 + tanh(y)) is x * sigmoid(2 * y)
    turn = x if silu else 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x / (1.0 + tl.exp(-turn))


@triton.jit
def gate(halves, out, width, silu: tl.constexpr, ahead: tl.constexpr, block: tl.constexpr):
    """A part of a row: what the gate makes of its first half, times the second. `width`: of a half."""
    follow(ahead)
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < width
    first = tl.load(halves + row * 2 * width + place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(halves + row * 2 * width + width + place, mask=inside, other=0.0).to(tl.float32)
    result = opened(first, silu) * second
    tl.store(out + row * width + place, result.to(out.dtype.element_ty), mask=inside)
