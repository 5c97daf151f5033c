"""A linear layer, and what the adapters of a step's rows add to its output: `x A^T B^T`, the scale being in B.

Several adapters are in one batch. Of few tokens all adapters are computed at once, and what is not a row's own is
masked: that takes three operators, however many adapters there are. Of many tokens each adapter is computed for its
own.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch
from torch import nn

from llmendpoint_server.core.batch import Scheduled

TOKENS_EACH = 16
"""With more tokens for each adapter, operators for each of them cost less than what is masked."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Which tokens of a step have which adapter. `first`, `last`: the lowest and the highest place in use. `mask`
    `[tokens, places, 1]`: 1 where a token has the adapter of a place, counted from `first`, otherwise 0. `parts`: a place and its tokens, if
    each place is computed for its own; None for all tokens."""

    first: int
    last: int
    mask: torch.Tensor
    parts: tuple[tuple[int, torch.Tensor | None], ...] | None

    @staticmethod
    def of(rows: Rows[Scheduled], like: torch.Tensor) -> Mix | None:
        """None: no row has an adapter. `like`: a tensor of the layers' dtype and device."""
        places = sorted({row.sequence.place for row in rows if row.sequence.place >= 0})
        if not places:
            return None
        each = [row.sequence.place for row in rows for _ in range(row.count)]
        own = torch.tensor(each, device=like.device)
        parts: list[tuple[int, torch.Tensor | None]] = []
        if len(places) == 1 and min(each) == places[0]:
            parts = [(places[0], None)]
        elif len(places) == 1 or len(each) > TOKENS_EACH * len(places):
            parts = [(place, (own == place).nonzero()[:, 0]) for place in places]
        known = torch.arange(places[0], places[-1] + 1, device=like.device)
        mask = (own[:, None] == known)[:, :, None].to(like.dtype)
        return Mix(places[0], places[-1], mask, tuple(parts) or None)


@dataclass(slots=True)
class Adapting:
    """What the adapted layers of one model add now; None: nothing."""

    mix: Mix | None = None


class AdaptedLinear(nn.Module):
    """`base`, a linear layer of any kind, with room for adapters. `parts` layers of one input may be joined in it: then the rows
    of A are those of the first part, of the second and so on, `rank` each, and B is zero where they do not meet."""

    def __init__(
        self,
        base: nn.Module,
        sizes: tuple[int, int, int],
        places: int,
        adapting: Adapting,
        like: torch.Tensor,
    ) -> None:
        """`sizes`: inputs, outputs, and the ranks of all parts together. `like`: a tensor of the dtype and the device."""
        super().__init__()
        inputs, outputs, ranks = sizes
        self.base = base
        self._adapting = adapting
        self._ranks = ranks
        self.a = like.new_zeros(places, ranks, inputs)
        self.b = like.new_zeros(places, ranks, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x)
        mix = self._adapting.mix
        if mix is None:
            return y
        flat, out = x.reshape(-1, x.shape[-1]), y.view(-1, y.shape[-1])
        if mix.parts is None:
            self._add_masked(mix, flat, out)
        else:
            for place, tokens in mix.parts:
                if tokens is None:
                    out.addmm_(flat @ self.a[place].t(), self.b[place])
                else:
                    added = (flat.index_select(0, tokens) @ self.a[place].t()) @ self.b[place]
                    out.index_add_(0, tokens, added)
        return y

    def _add_masked(self, mix: Mix, flat: torch.Tensor, out: torch.Tensor) -> None:
        places = slice(mix.first, mix.last + 1)
        a, b = self.a[places].flatten(0, 1), self.b[places].flatten(0, 1)
        inner = (flat @ a.t()).view(len(flat), -1, self._ranks)
        inner *= mix.mask
        out.addmm_(inner.view(len(flat), -1), b)
