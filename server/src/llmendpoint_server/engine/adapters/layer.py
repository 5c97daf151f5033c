"""A linear layer, and what the adapters of a step's rows add to its output: `x A^T B^T`, the scale being in B.

Several adapters are in one batch. Of few tokens all adapters are computed at once, and what is not a row's own is
masked: that takes a few operators, however many adapters there are. Of many tokens each adapter is computed for its
own.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import torch
from torch import nn

from llmendpoint_server.core.batch import Scheduled
from llmendpoint_server.engine.operators import Linear

TOKENS_EACH = 16
"""With more tokens for each adapter, operators for each of them cost less than what is masked."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Which tokens of a step have which adapter. `places`: those in use, in their order. `others`
    `[tokens, places, 1]`: False where a token has the adapter of a place, counted from the first one in use; otherwise True. `parts`: a place and its tokens, if each place is computed for its own;
    None for all tokens."""

    places: tuple[int, ...]
    others: torch.Tensor
    parts: tuple[tuple[int, torch.Tensor | None], ...] | None

    @staticmethod
    def of(rows: Rows[Scheduled], like: torch.Tensor) -> Mix | None:
        """None: no row has an adapter. `like`: a tensor of the layers' dtype and device."""
        places = tuple(sorted({row.sequence.place for row in rows if row.sequence.place >= 0}))
        if not places:
            return None
        each = [row.sequence.place for row in rows for _ in range(row.count)]
        if len(places) > 1 and len(each) <= TOKENS_EACH * len(places):
            known = torch.arange(places[0], places[-1] + 1, device=like.device)
            own = torch.tensor(each, device=like.device)
            return Mix(places, (own[:, None] != known)[:, :, None], None)
        if places == (min(each),):
            return Mix(places, like, ((places[0], None),))
        tokens = {place: [at for at, one in enumerate(each) if one == place] for place in places}
        parts = ((place, torch.tensor(own, device=like.device)) for place, own in tokens.items())
        return Mix(places, like, tuple(parts))


@dataclass(slots=True)
class Adapting:
    """What the adapted layers of one model add now; None: nothing."""

    mix: Mix | None = None


class AdaptedLinear(nn.Module):
    """`base`, a linear layer of any kind, with room for adapters. Several layers of one input may be joined in it, its parts: `outputs` of
    each. In `a` `[places, parts * rank, inputs]` lie the rows of the first part, then of the second, and so on; `b` has
    `[places, rank, outputs]` for each part. What an adapter does not have is zero."""

    def __init__(
        self,
        base: nn.Module,
        inputs: int,
        outputs: Rows[int],
        room: tuple[int, int],
        adapting: Adapting,
        like: torch.Tensor,
    ) -> None:
        """`room`: places, and the most rank. `like`: a tensor of the dtype and the device."""
        super().__init__()
        places, self.rank = room
        self.base = base
        self._adapting = adapting
        self.a = like.new_zeros(places, len(outputs) * self.rank, inputs)
        self.b = [like.new_zeros(places, self.rank, size) for size in outputs]
        ends = list(accumulate(outputs))
        self._columns = [slice(end - size, end) for end, size in zip(ends, outputs, strict=True)]
        self.holders: set[int] = set()
        """the places whose adapter changes this layer"""

    @property
    def bytes_each(self) -> int:
        """Of one place."""
        return (self.a.nbytes + sum(b.nbytes for b in self.b)) // len(self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x)
        if (mix := self.mix) is not None:
            self.add(mix, x, y)
        return y

    @property
    def mix(self) -> Mix | None:
        """None: no row of this step has an adapter that changes this layer."""
        mix = self._adapting.mix
        return None if mix is None or self.holders.isdisjoint(mix.places) else mix

    def add(self, mix: Mix, x: torch.Tensor, y: torch.Tensor) -> None:
        """To `y`, what the adapters make of `x`."""
        flat, out = x.reshape(-1, x.shape[-1]), y.view(-1, y.shape[-1])
        if mix.parts is None:
            self._add_masked(mix, flat, out)
        else:
            for place, tokens in mix.parts:
                if place in self.holders:
                    self._add(place, tokens, flat, out)

    def _add(self, place: int, tokens: torch.Tensor | None, flat: torch.Tensor, out: torch.Tensor) -> None:
        own = flat if tokens is None else flat.index_select(0, tokens)
        inner = own @ self.a[place].t()
        for part, (b, columns) in enumerate(zip(self.b, self._columns, strict=True)):
            ranks = inner[:, part * self.rank : (part + 1) * self.rank]
            if tokens is None:
                out[:, columns].addmm_(ranks, b[place])
            else:
                out[:, columns].index_add_(0, tokens, ranks @ b[place])

    def _add_masked(self, mix: Mix, flat: torch.Tensor, out: torch.Tensor) -> None:
        places = slice(mix.places[0], mix.places[-1] + 1)
        inner = (flat @ self.a[places].flatten(0, 1).t()).view(len(flat), -1, self.a.shape[1])
        # Not a product with 0: what another adapter makes of a token may be infinite.
        inner.masked_fill_(mix.others, 0)
        for part, (b, columns) in enumerate(zip(self.b, self._columns, strict=True)):
            ranks = inner[:, :, part * self.rank : (part + 1) * self.rank].flatten(1)
            out[:, columns].addmm_(ranks, b[places].flatten(0, 1))


class AdaptedGate(AdaptedLinear):
    """The same of a gated layer of our kernels, a `Linear`: its two parts are changed before they meet."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (mix := self.mix) is None:
            whole: torch.Tensor = self.base(x)
            return whole
        base = cast(Linear, self.base)
        y = base.halves(x)
        self.add(mix, x, y)
        return base.met(y)
