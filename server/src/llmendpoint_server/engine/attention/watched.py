"""A backend that tells how layers use it, for the checks at load."""

from __future__ import annotations

from collections.abc import Sequence as Row
from typing import cast

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache
from llmendpoint_server.engine.attention.in_place import InPlace, LayerTable
from llmendpoint_server.engine.step import Step


class Watched(Backend):
    """A `Backend` around another one. `calls`: how often each layer attended. `rules`: what each layer gave last."""

    def __init__(self, backend: Backend) -> None:
        self.cache = backend.cache
        self.calls: dict[int, int] = {}
        self.rules: dict[int, Rules] = {}
        self._backend = backend

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._backend.reserve(rows, tokens, longest)

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return self._backend.prepare(batch, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        self.calls[pages.index] = self.calls.get(pages.index, 0) + 1
        self.rules[pages.index] = rules
        return self._backend.compute(step, pages, states, rules)

    def compute_layers(self, step: Step, table: LayerTable, *states: torch.Tensor) -> None:
        """As in `InPlace`, which must be what is watched."""
        for layer in table.indices:
            self.calls[layer] = self.calls.get(layer, 0) + 1
        cast(InPlace, self._backend).compute_layers(step, table, *states)
