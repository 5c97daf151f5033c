"""Layers of which each rank holds a part. Between two of them each rank goes on with its own heads, or its own part of a feed-forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmendpoint_server.engine.parallel.group import Group


class Summed(nn.Module):
    """A module that gives each rank one term of its output."""

    def __init__(self, inner: nn.Module, group: Group) -> None:
        super().__init__()
        self.inner = inner
        self._group = group

    def forward(self, *args: Any, **named: Any) -> torch.Tensor:
        return self._group.add(self.inner(*args, **named))


class RowLinear(nn.Module):
    """A linear layer of which each rank has some of the inputs. `splits`: it gets all inputs, and takes its own."""

    def __init__(self, linear: nn.Linear, group: Group, splits: bool) -> None:
        super().__init__()
        # Its own module, without the bias, which is added once: engine/surgery.py replaces it by a faster one.
        self.bias = linear.bias
        linear.register_parameter("bias", None)
        self.linear: nn.Module = linear
        self._group = group
        self._splits = splits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self._group.add(self.linear(self._group.columns(x) if self._splits else x))
        return whole if self.bias is None else whole + self.bias


class GatheredLinear(nn.Module):
    """A linear layer of which each rank has some of the `width` outputs, and gives all of them."""

    def __init__(self, linear: nn.Linear, group: Group, width: int) -> None:
        super().__init__()
        self.linear: nn.Module = linear
        self._group = group
        self._width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._group.join_columns(self.linear(x), self._width)


class RowEmbedding(nn.Module):
    """An embedding of which each rank has the rows from `first` on. `inner` may change them, but not add to them."""

    def __init__(self, inner: nn.Module, group: Group, first: int, rows: int) -> None:
        super().__init__()
        self.inner = inner
        self._group = group
        self._first, self._rows = first, rows

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = ids - self._first
        foreign = (places < 0) | (places >= self._rows)
        found = self.inner(places.masked_fill(foreign, 0))
        return self._group.add(found.masked_fill(foreign[..., None], 0))
