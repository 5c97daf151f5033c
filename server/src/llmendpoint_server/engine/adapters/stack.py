"""The adapters of one model on its device: finds its linear layers after they were joined and packed, makes room beside each, and
fills places piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from llmendpoint_server.core.batch import Scheduled
from llmendpoint_server.engine.adapters.files import Pair, Unfit, read_adapter
from llmendpoint_server.engine.adapters.layer import AdaptedGate, AdaptedLinear, Adapting, Mix
from llmendpoint_server.engine.fused import FusedAttention, FusedLayers, FusedMlp
from llmendpoint_server.engine.surgery import SIBLINGS, FollowingProjection, LeadProjection
from llmendpoint_server.errors import BadConfiguration

Shapes = Mapping[str, tuple[int, int]]
"""Inputs and outputs of linear layers, by their name in the model."""
_WITHIN: Mapping[type[nn.Module], Mapping[str, str]] = {
    FusedAttention: {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "o_proj": "out"},
    FusedMlp: {"gate_proj": "gate_up", "up_proj": "gate_up", "down_proj": "down"},
}
"""Where fused modules have the layers that they were made of."""
_ORDER = {name: place for names in SIBLINGS for place, name in enumerate(names)}
"""Of layers that are joined; a model may have them in another order."""


def linears_of(model: Any) -> dict[str, tuple[int, int]]:
    """Those that may be adapted; to be asked before they are joined and packed. What makes logits may not."""
    head = model.get_output_embeddings()
    return {
        name: (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module is not head
    }


@dataclass(frozen=True, slots=True)
class Host:
    """A layer that computes some linear layers of one input: their names, in the order of its outputs."""

    layer: AdaptedLinear
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What fills one layer's place. `a` None: the adapter does not change this layer."""

    layer: AdaptedLinear
    a: torch.Tensor | None
    b: tuple[torch.Tensor, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return self.layer.bytes_each

    def copy_to(self, place: int) -> None:
        layer = self.layer
        layer.holders.discard(place)
        if self.a is None:  # its zeros count when other places are computed beside it
            layer.a[place].zero_()
            return
        layer.a[place].copy_(self.a)
        for ours, theirs in zip(layer.b, self.b, strict=True):
            ours[place].copy_(theirs)
        layer.holders.add(place)


class Stack:
    """Room for `places` adapters of up to `rank` in `model`, whose linear layers were `linears`. `like`: a tensor of its dtype on
    its device. Raises BadConfiguration if there is no memory for it."""

    def __init__(self, model: Any, linears: Shapes, places: int, rank: int, like: torch.Tensor) -> None:
        self._linears, self._rank, self._like = linears, rank, like
        self._adapting = Adapting()
        try:
            self._hosts = self._make_hosts(model, places)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            each = sum(rank * (inputs + outputs) for inputs, outputs in linears.values()) * like.itemsize
            raise BadConfiguration(
                f"There is no memory for {places} adapters of rank {rank}, {each} bytes each or more: set --max-loras or "
                f"--max-lora-rank lower ({type(error).__name__})."
            ) from error

    @property
    def bytes(self) -> int:
        return sum(len(host.layer.a) * host.layer.bytes_each for host in self._hosts)

    def _make_hosts(self, model: Any, places: int) -> list[Host]:
        joined: dict[tuple[nn.Module, str], list[str]] = {}
        for name in self._linears:
            joined.setdefault(_host_of(model, name), []).append(name)
        hosts = []
        for (parent, attribute), parts in joined.items():
            parts.sort(key=lambda name: _ORDER.get(name.rpartition(".")[2], 0))
            base = getattr(parent, attribute)
            gated = getattr(base, "gated", False)
            outputs = [self._linears[part][1] for part in parts]
            layer = (AdaptedGate if gated else AdaptedLinear)(
                base, self._linears[parts[0]][0], outputs, (places, self._rank),
                self._adapting, self._like,
            )  # fmt: skip
            setattr(parent, attribute, layer)
            hosts.append(Host(layer, tuple(parts)))
        for module in model.modules():
            if isinstance(module, FusedLayers):
                module.apart = self._adapts
        return hosts

    def _adapts(self) -> bool:
        return self._adapting.mix is not None

    def begin(self, rows: Rows[Scheduled]) -> None:
        """The next forward is of these rows, in this order."""
        self._adapting.mix = Mix.of(rows, self._like)

    def end(self) -> None:
        self._adapting.mix = None

    def read(self, folder: Path) -> list[Piece]:
        """An adapter from its files, as it fills a place. May take long, and touches nothing of the model. Raises Unfit."""
        pairs = read_adapter(folder, self._linears, self._rank)
        return [self._piece(host, pairs) for host in self._hosts]

    def _piece(self, host: Host, pairs: Mapping[str, Pair]) -> Piece:
        if pairs.keys().isdisjoint(host.parts):
            return Piece(host.layer, None)
        dtype = self._like.dtype
        a = torch.zeros(host.layer.a.shape[1:], dtype=dtype)
        b = tuple(torch.zeros(one.shape[1:], dtype=dtype) for one in host.layer.b)
        for number, part in enumerate(host.parts):
            if (pair := pairs.get(part)) is not None:
                first, rank = number * self._rank, len(pair.a)
                a[first : first + rank] = pair.a
                b[number][:rank] = (pair.b.float() * pair.scale).t()
                if not (a.isfinite().all() and b[number].isfinite().all()):
                    raise Unfit(f"{part}: a weight is too large for {str(dtype).removeprefix('torch.')}")
        return Piece(host.layer, a, b)

    def fill(self, place: int, pieces: Rows[Piece], most: int) -> Iterator[None]:
        """Copy an adapter to its place, and pause after each `most` bytes. No row may have it meanwhile."""
        copied = 0
        for piece in pieces:
            with torch.inference_mode():
                piece.copy_to(place)
            copied += piece.size
            if copied >= most:
                copied = 0
                yield


def _host_of(model: Any, name: str) -> tuple[nn.Module, str]:
    """The module that has what computes the layer now, and by which name."""
    *path, last = name.split(".")
    parent: Any = model
    for step in path:
        layers = parent[0] if isinstance(parent, nn.ModuleList) else None
        parent = getattr(layers.layers if isinstance(layers, FusedLayers) else parent, step)
    if (within := _WITHIN.get(type(parent))) is not None:
        return parent, within[last]
    module = getattr(parent, last)
    if isinstance(module, LeadProjection):
        return module, "linear"
    if isinstance(module, FollowingProjection):
        return module.lead, "linear"
    return parent, last
