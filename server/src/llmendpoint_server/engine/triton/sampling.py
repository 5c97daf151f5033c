"""The sampler's stages as kernels for CUDA graphs: the same tokens as those of `sampling/`, to the bit.

A row's logits are read in chunks by many programs. What they add up are whole numbers, so any order gives the same sum. Where a row asks for
top_k or top_p, the weight at which the goal is reached is found digit by digit. Rows that ask for nothing cost nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER
from llmendpoint_server.engine.sampling.weights import bits_of_weights, polynomial

CHUNK = 4096
"""Logits that a program reads."""
_DIGIT_BITS = 5
_SHIFTS = (25, 20, 15, 10, 5, 0)
_DIGITS = tl.constexpr(2**_DIGIT_BITS)
_LOG2_E = tl.constexpr(math.log2(math.e))
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_WHOLE = tl.constexpr(1.5 * 2**23)
_BITS_OF_ONE = tl.constexpr(127 << 23)
_P0, _P1, _P2, _P3, _P4, _P5 = (tl.constexpr(factor) for factor in polynomial())
_BAD = tl.constexpr(NOT_A_NUMBER)
_compiled_once = triton.jit(
    do_not_specialize=["rows", "shift"], do_not_specialize_on_alignment=["parameters"]
)
"""For any number of rows and any digit."""


@triton.jit
def _largest(logits, line, size, tops, places, CHUNK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row.to(tl.int64) * line + at, mask=at < size, other=float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    first = tl.min(tl.where(x == top, at, size), 0)
    top = tl.where(tl.max((x != x).to(tl.int32), 0) > 0, float("nan"), top)
    tl.store(tops + row * tl.num_programs(1) + part, top)
    tl.store(places + row * tl.num_programs(1) + part, first)


@triton.jit
def _largest_of(tops, places, parts, size, highest, tokens, PARTS: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, PARTS)
    tops_here = tl.load(tops + row * parts + at, mask=at < parts, other=float("-inf"))
    firsts = tl.load(places + row * parts + at, mask=at < parts, other=size)
    top = tl.max(tops_here, 0)
    token = tl.min(tl.where(tops_here == top, firsts, size), 0)
    top = tl.where(tl.max((tops_here != tops_here).to(tl.int32), 0) > 0, float("nan"), top)
    finite = (top == top) & (tl.abs(top) != float("inf"))
    tl.store(highest + row, top)
    tl.store(tokens + row, tl.where(finite, token, _BAD).to(tl.int64))


@triton.jit
def _weights(logits, line, row, at, size, highest, temperature, MAGIC: tl.constexpr):
    """As `weigh`: whole numbers in int64, and their order in int32; 0 beyond the vocabulary."""
    x = tl.load(logits + row.to(tl.int64) * line + at, mask=at < size, other=float("-inf")).to(tl.float32)
    scale = (tl.full([], _LOG2_E, tl.float64) / tl.maximum(temperature, _TINY)).to(tl.float32)
    power = tl.maximum((x - tl.load(highest + row)) * scale, -64.0)
    exponent = power + MAGIC
    power = power - (exponent - MAGIC)
    result = power * _P0
    result = (result + _P1) * power
    result = (result + _P2) * power
    result = (result + _P3) * power
    result = (result + _P4) * power
    result = result + _P5
    shifted = exponent.to(tl.int32, bitcast=True) << 23
    result = (result.to(tl.int32, bitcast=True) + shifted).to(tl.float32, bitcast=True)
    whole = tl.where(at < size, result.to(tl.int64), 0)
    bits = whole.to(tl.float32).to(tl.int32, bitcast=True)
    return whole, tl.where(whole > 0, bits - _BITS_OF_ONE + 1, 0)


@triton.jit
def _weight_of(order):
    bits = tl.where(order > 0, order + _BITS_OF_ONE - 1, 0)
    return bits.to(tl.float32, bitcast=True).to(tl.int64)


@triton.jit
def _asks(parameters, rows, row, size, TOP_P: tl.constexpr):
    """Whether a row wants this filter."""
    drawn = tl.load(parameters + row) != 0
    if TOP_P:
        return drawn & (tl.load(parameters + rows + row) < 1)
    top_k = tl.load(parameters + 2 * rows + row)
    return drawn & (top_k > 0) & (top_k < size)


@_compiled_once
def _digits(
    logits, line, size, highest, parameters, rows, found, kept, totals, shift,
    BITS: tl.constexpr, TOP_P: tl.constexpr, MAGIC: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The measure of each digit among the weights that begin as `found`: their number, or their sum of those from `kept` on."""
    row, part = tl.program_id(0), tl.program_id(1)
    if not _asks(parameters, rows, row, size, TOP_P):
        return
    at = part * CHUNK + tl.arange(0, CHUNK)
    whole, order = _weights(logits, line, row, at, size, highest, tl.load(parameters + row), MAGIC)
    alike = ((order >> (shift + BITS)) == tl.load(found + row)) & (at < size)
    if TOP_P:
        alike = alike & (order >= tl.load(kept + row))
        measure = tl.where(alike, whole, 0)
    else:
        measure = alike.to(tl.int64)
    place = totals + (row * tl.num_programs(1) + part) * _DIGITS
    digit = (order >> shift) & (_DIGITS - 1)
    if tl.max(alike.to(tl.int32), 0) == 0:
        tl.store(place + tl.arange(0, _DIGITS), tl.zeros([_DIGITS], tl.int64))
    else:
        for one in tl.range(_DIGITS):
            tl.store(place + one, tl.sum(tl.where(digit == one, measure, 0), 0))


@_compiled_once
def _choose(
    totals, parts, size, parameters, rows, goals, found, before, kept, ties, equals, shift,
    BITS: tl.constexpr, TOP_P: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The digit at which the goal is reached. After the last one: the weight, `kept`, and how many equal ones are kept, `ties`, of `equals`."""
    row = tl.program_id(0)
    if not _asks(parameters, rows, row, size, TOP_P):
        return
    at, digits = tl.arange(0, PARTS), tl.arange(0, _DIGITS)
    place = totals + (row * parts + at[:, None]) * _DIGITS + digits[None]
    sums = tl.sum(tl.load(place, mask=at[:, None] < parts, other=0), 0)
    prefix, above = tl.load(found + row), tl.load(before + row)
    least, tied = tl.load(kept + row), tl.load(ties + row)
    if TOP_P:
        goal = tl.load(goals + row)
        beyond = (tl.load(equals + row) - tied) * _weight_of(least)  # equal weights that top_k has ruled out
        lies_here = ((least >> (shift + BITS)) == prefix) & (tied >= 0)
        sums -= tl.where(lies_here & (digits == ((least >> shift) & (_DIGITS - 1))), beyond, 0)
    else:
        goal = tl.load(parameters + 2 * rows + row)
    from_here = above + tl.sum(sums, 0) - tl.cumsum(sums, 0) + sums
    digit = tl.maximum(tl.sum((from_here.to(tl.float64) >= goal).to(tl.int32), 0) - 1, 0)
    mine = tl.sum(tl.where(digits == digit, sums, 0), 0)
    above = tl.sum(tl.where(digits == digit, from_here, 0), 0) - mine
    prefix = (prefix << BITS) | digit
    tl.store(found + row, prefix)
    tl.store(before + row, above)
    if shift == 0:  # the last digit
        if TOP_P:
            each = tl.maximum(_weight_of(prefix), 1)
        else:
            each = tl.full([], 1, tl.int64)
            tl.store(equals + row, mine)
        count = tl.maximum(((goal - above.to(tl.float64)) / each.to(tl.float64)).to(tl.int64) - 1, 0)
        for _ in tl.static_range(3):
            count += ((above + count * each).to(tl.float64) < goal).to(tl.int64)
        tl.store(kept + row, prefix)
        tl.store(ties + row, count)


@_compiled_once
def _sums(
    logits,
    line,
    size,
    highest,
    parameters,
    rows,
    kept,
    above,
    equal,
    MAGIC: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Of each chunk: the sum of the weights above `kept`, and how many equal it."""
    row, part = tl.program_id(0), tl.program_id(1)
    temperature = tl.load(parameters + row)
    if temperature == 0:
        return
    at = part * CHUNK + tl.arange(0, CHUNK)
    whole, order = _weights(logits, line, row, at, size, highest, temperature, MAGIC)
    least = tl.load(kept + row)
    place = row * tl.num_programs(1) + part
    tl.store(above + place, tl.sum(tl.where(order > least, whole, 0), 0))
    tl.store(equal + place, tl.sum(((order == least) & (at < size)).to(tl.int64), 0))


@_compiled_once
def _goal(above, parts, size, parameters, rows, kept, ties, goals, found, before, PARTS: tl.constexpr):
    """top_p's share of what top_k has left."""
    row, at = tl.program_id(0), tl.arange(0, PARTS)
    if not _asks(parameters, rows, row, size, True):
        return
    total = tl.sum(tl.load(above + row * parts + at, mask=at < parts, other=0), 0)
    total += tl.maximum(tl.load(ties + row), 0) * _weight_of(tl.load(kept + row))
    tl.store(goals + row, tl.load(parameters + rows + row) * total.to(tl.float64))
    tl.store(found + row, 0)
    tl.store(before + row, tl.full([], 0, tl.int64))


@_compiled_once
def _draw(
    logits, line, size, highest, parameters, rows, kept, ties, above, equal, parts, tokens,
    MAGIC: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Replace a row's token by the one at which the sum of the weights, in the order of the vocabulary, passes its noise."""
    row, all_parts = tl.program_id(0), tl.arange(0, PARTS)
    temperature, token = tl.load(parameters + row), tl.load(tokens + row)
    if (temperature == 0) | (token == _BAD):
        return
    least, tied = tl.load(kept + row), tl.maximum(tl.load(ties + row), 0)
    sums = tl.load(above + row * parts + all_parts, mask=all_parts < parts, other=0)
    equals = tl.load(equal + row * parts + all_parts, mask=all_parts < parts, other=0)
    earlier = tl.cumsum(equals, 0) - equals
    sums += tl.minimum(tl.maximum(tied - earlier, 0), equals) * _weight_of(least)
    passed = tl.cumsum(sums, 0)
    total = tl.sum(sums, 0)
    target = (tl.load(parameters + 3 * rows + row) * total.to(tl.float64)).to(tl.int64)
    target = tl.minimum(target, total - 1)
    part = tl.minimum(tl.sum((passed <= target).to(tl.int32), 0), parts - 1)
    mine = all_parts == part
    rest = target - tl.sum(tl.where(mine, passed - sums, 0), 0)
    at = part * CHUNK + tl.arange(0, CHUNK)
    whole, order = _weights(logits, line, row, at, size, highest, temperature, MAGIC)
    alike = ((order == least) & (at < size)).to(tl.int64)
    rank = tl.sum(tl.where(mine, earlier, 0), 0) + tl.cumsum(alike, 0) - alike
    whole = tl.where((order > least) | ((alike > 0) & (rank < tied)), whole, 0)
    place = part * CHUNK + tl.sum((tl.cumsum(whole, 0) <= rest).to(tl.int32), 0)
    tl.store(tokens + row, tl.minimum(place, size - 1).to(tl.int64))


def most_probable(logits: torch.Tensor, highest: torch.Tensor, tokens: torch.Tensor) -> None:
    """Write each row's largest logit to `highest`, float32, NaN if the row holds one, and the first token that has it to `tokens`, int64;
    NOT_A_NUMBER if it is not finite. `logits` `[rows, vocabulary]`."""
    rows, size = logits.shape
    parts = triton.cdiv(size, CHUNK)
    tops = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    places = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    _largest[rows, parts](logits, logits.stride(0), size, tops, places, CHUNK=CHUNK, num_warps=8)
    padded = triton.next_power_of_2(parts)
    _largest_of[rows,](tops, places, parts, size, highest, tokens, PARTS=padded, num_warps=1)


def draw(
    logits: torch.Tensor,
    highest: torch.Tensor,
    parameters: torch.Tensor,
    tokens: torch.Tensor,
    filtered: bool,
) -> None:
    """Replace the `tokens` of the rows that are neither greedy nor NOT_A_NUMBER. `logits` `[rows, vocabulary]`; `highest`, `tokens`: of
    `most_probable`. `parameters`: float64 `[4, rows]`, temperature, top_p, top_k, noise. `filtered`: whether a row may ask for top_p or top_k."""
    rows, size = logits.shape
    parts, device = triton.cdiv(size, CHUNK), logits.device
    row_of = {"rows": rows, "size": size, "parameters": parameters}
    read = {"logits": logits, "line": logits.stride(0), "highest": highest}
    padded = triton.next_power_of_2(parts)
    weigh: dict[str, Any] = {
        "MAGIC": 1.5 * 2**23 + bits_of_weights(size), "CHUNK": CHUNK, "enable_fp_fusion": False, "num_warps": 8,
    }  # fmt: skip
    kept = torch.full([rows], -1, dtype=torch.int32, device=device)
    ties = torch.full([rows], -1, dtype=torch.int64, device=device)
    above, equal = (torch.empty(rows, parts, dtype=torch.int64, device=device) for _ in range(2))
    sums = {**read, **row_of, "kept": kept, "above": above, "equal": equal}
    if filtered:
        found = torch.zeros(rows, dtype=torch.int32, device=device)
        before, equals = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        totals = torch.empty(rows, parts, 2**_DIGIT_BITS, dtype=torch.int64, device=device)
        goals = torch.zeros(rows, dtype=torch.float64, device=device)
        for top_p in (False, True):
            if top_p:
                _sums[rows, parts](**sums, **weigh)
                _goal[rows,](
                    above=above, parts=parts, **row_of, kept=kept, ties=ties, goals=goals, found=found, before=before,
                    PARTS=padded, num_warps=1,
                )  # fmt: skip
            for shift in _SHIFTS:
                how: dict[str, Any] = {"shift": shift, "BITS": _DIGIT_BITS, "TOP_P": top_p}
                _digits[rows, parts](**read, **row_of, found=found, kept=kept, totals=totals, **how, **weigh)
                _choose[rows,](
                    totals=totals, parts=parts, **row_of, goals=goals, found=found, before=before, kept=kept, ties=ties,
                    equals=equals, PARTS=padded, **how, num_warps=4,
                )  # fmt: skip
    _sums[rows, parts](**sums, **weigh)
    _draw[rows,](
        **read,
        **row_of,
        kept=kept,
        ties=ties,
        above=above,
        equal=equal,
        parts=parts,
        tokens=tokens,
        PARTS=padded,
        **weigh,
    )
