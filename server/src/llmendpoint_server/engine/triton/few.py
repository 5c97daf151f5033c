"""A linear layer of few rows, as a step of few sequences has them: the weight is read once, as fast as memory gives it.

What comes before the layer and after it is done on the way: a norm of its input; a gate over its outputs, or the sum with what they are added
to. Parameters have no types, because Triton would read those.
"""

import triton
import triton.language as tl
from triton.language.extra import cuda

from llmendpoint_server.engine.triton.kernels import opened


@triton.jit(do_not_specialize=["count", "outputs"])
def few(
    x, weight, bias, scale, residual, out, count, outputs, eps,
    inputs: tl.constexpr, rows: tl.constexpr, normed: tl.constexpr, added: tl.constexpr, biased: tl.constexpr,
    gated: tl.constexpr, silu: tl.constexpr, ahead: tl.constexpr,
    outputs_block: tl.constexpr, inputs_block: tl.constexpr,
):  # fmt: skip
    """Some outputs of all `count` rows of `x`, of which there may be up to `rows`. `outputs`: of the result; a gated weight has twice as many.
    With a norm one block must hold all inputs. `ahead`: the kernel is launched before the one before it has ended, and waits for it only
    when it has asked for its weights."""
    output = tl.program_id(0) * outputs_block + tl.arange(0, outputs_block)
    kept = output < outputs
    line = tl.arange(0, rows)
    start = weight + output.to(tl.int64)[:, None] * inputs
    total = tl.zeros([outputs_block, rows], tl.float32)
    other = tl.zeros([outputs_block, rows], tl.float32)
    if ahead:
        cuda.gdc_launch_dependents()
    for begin in range(0, inputs, inputs_block):
        place = begin + tl.arange(0, inputs_block)
        inside = place < inputs
        here = kept[:, None] & inside[None, :]
        tile = tl.load(start + place[None, :], mask=here, other=0.0)
        if gated:
            second = tl.load(start + outputs.to(tl.int64) * inputs + place[None, :], mask=here, other=0.0)
        if normed:
            scales = tl.load(scale + place, mask=inside, other=0.0)
        if ahead:
            cuda.gdc_wait()
        for row in tl.static_range(rows):
            at = tl.minimum(row, count - 1) * inputs
            values = tl.load(x + at + place, mask=inside, other=0.0).to(tl.float32)
            if normed:
                factor = tl.rsqrt(tl.sum(values * values, 0) / inputs + eps)
                values = (values * factor * scales).to(x.dtype.element_ty).to(tl.float32)
            mine = (line == row)[None, :]
            total += tl.where(mine, tl.sum(tile.to(tl.float32) * values[None, :], 1)[:, None], 0.0)
            if gated:
                other += tl.where(mine, tl.sum(second.to(tl.float32) * values[None, :], 1)[:, None], 0.0)
    if biased:
        total += tl.load(bias + output, mask=kept, other=0.0).to(tl.float32)[:, None]
    result = total.to(out.dtype.element_ty)  # as it is rounded where the layer is an operator of its own
    if gated:
        if biased:
            other += tl.load(bias + outputs + output, mask=kept, other=0.0).to(tl.float32)[:, None]
        up = other.to(out.dtype.element_ty).to(tl.float32)
        result = (opened(result.to(tl.float32), silu) * up).to(out.dtype.element_ty)
    target = line[None, :] * outputs + output[:, None]
    stored = kept[:, None] & (line < count)[None, :]
    if added:
        before = tl.load(residual + target, mask=stored, other=0.0).to(tl.float32)
        result = (result.to(tl.float32) + before).to(out.dtype.element_ty)
    tl.store(out + target, result, mask=stored)
