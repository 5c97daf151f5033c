"""What every attention backend is asked: the rules of a layer, and one step's queries against the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from llmendpoint_server.core.batch import Batch
from llmendpoint_server.engine.attention.cache import PagedCache
from llmendpoint_server.engine.step import Step


@dataclass(frozen=True, slots=True)
class Rules:
    """What a layer needs of its attention besides causality: see transformers' eager attention functions.

    `sliding_window`: a query sees this many keys, its own included. `softcap`: scores go through `softcap * tanh(score
    / softcap)`. `sinks`: one more logit per head `[heads]`, which takes weight but has no value.
    """

    scale: float
    sliding_window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def plain(self) -> bool:
        return self.softcap is None and self.sinks is None


class Backend(Protocol):
    """Attention over pages that it holds."""

    cache: PagedCache

    def prepare(self, batch: Batch) -> Step:
        """What the layers need to know of a step: made once, and read by all of them."""

    def attend(
        self,
        step: Step,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        rules: Rules,
    ) -> torch.Tensor:
        """Write the step's keys and values to the pages of a layer, and attend. `query` `[1, heads, T, key_dim]`, `key` and `value`
        `[1, kv_heads, T, dim]`; returns `[T, heads, value_dim]`."""
