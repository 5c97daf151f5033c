"""A backend that tells how layers use it, for the checks at load."""

from __future__ import annotations

from typing import Any, cast

import torch

from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.in_place import InPlace, LayerTable
from llmendpoint_server.engine.step import Step


class Watched:
    """A `Backend` around another one. `calls`: how often each layer attended. `rules`: what each layer gave last."""

    def __init__(self, backend: Backend) -> None:
        self.cache = backend.cache
        self.prepare = backend.prepare
        self.calls: dict[int, int] = {}
        self.rules: dict[int, Rules] = {}
        self._backend = backend

    def attend(self, step: Step, layer: int, *states: Any) -> torch.Tensor:
        """`states`: as in `Backend`; the rules are the last of them."""
        self.calls[layer] = self.calls.get(layer, 0) + 1
        self.rules[layer] = states[-1]
        return self._backend.attend(step, layer, *states)

    def compute_layers(self, step: Step, table: LayerTable, *states: torch.Tensor) -> None:
        """As in `InPlace`, which must be what is watched."""
        for layer in table.indices:
            self.calls[layer] = self.calls.get(layer, 0) + 1
        cast(InPlace, self._backend).compute_layers(step, table, *states)
