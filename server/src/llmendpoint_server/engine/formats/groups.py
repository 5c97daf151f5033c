"""The one form of quantized weights in memory: whole numbers with a scale for each group of inputs of an output."""

from __future__ import annotations

from dataclasses import dataclass

import torch


class UnsupportedWeights(Exception):
    """A format, or a variant of one, that is not read here. The text continues `its weights ...`."""


class BadWeights(ValueError):
    """Tensors that contradict each other or the configuration."""


@dataclass(frozen=True, slots=True)
class Groups:
    """A linear layer's weight: `(values - zero) * scale`.

    `values`: int8 `[outputs, inputs]`, whole numbers of `bits` bits, from -2^(bits-1) on. `scale`: float32 `[outputs, groups]`; a group is
    `inputs / groups` inputs in a row. `zero`: float32 likewise; None: all are 0.
    """

    values: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    bits: int

    @property
    def size(self) -> int:
        """Inputs of a group."""
        return int(self.values.shape[1] // self.scale.shape[1])

    def dense(self) -> torch.Tensor:
        """The weight in float32."""
        outputs, count = self.scale.shape
        values = self.values.float().view(outputs, count, -1)
        if self.zero is not None:
            values = values - self.zero[..., None]
        return (values * self.scale[..., None]).view(outputs, -1)


def grouped(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, bits: int) -> Groups:
    """`Groups` from numbers as they are stored: `values` and `zero` from -2^(bits-1) on, `[outputs, ...]`."""
    some = zero is not None and bool(zero.any())
    return Groups(
        values.to(torch.int8).contiguous(),
        scale.float().contiguous(),
        zero.float().contiguous() if zero is not None and some else None,
        bits,
    )


def unpack(words: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Unsigned numbers of `bits` bits from int32 words along `dim`, the lowest bits first, as int32."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    dim %= words.dim()
    shape = [1] * (words.dim() + 1)
    shape[dim + 1] = len(shifts)
    numbers: torch.Tensor = (words.unsqueeze(dim + 1) >> shifts.view(shape)) & (2**bits - 1)
    flat: torch.Tensor = numbers.flatten(dim, dim + 1)
    return flat


def group_count(inputs: int, group_size: int, what: str) -> int:
    """Groups of `inputs` inputs; `group_size` -1 means one. Raises BadWeights for a size that does not divide."""
    size = inputs if group_size in (-1, 0) else group_size
    if size < 1 or inputs % size:
        raise BadWeights(f"{what} has {inputs} inputs, which groups of {group_size} do not divide")
    return inputs // size


def expect(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtypes: frozenset[torch.dtype]) -> None:
    """Raises BadWeights unless a tensor has this shape and one of these dtypes."""
    if tuple(tensor.shape) != shape:
        raise BadWeights(
            f"{name} is {list(tensor.shape)}, and the configuration and its layer's other tensors want {list(shape)}"
        )
    if tensor.dtype not in dtypes:
        wanted = ", ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
        raise BadWeights(f"{name} is {str(tensor.dtype).removeprefix('torch.')}, and must be {wanted}")


FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32})
WORDS = frozenset({torch.int32})
EIGHT_BITS = frozenset({torch.int8})
