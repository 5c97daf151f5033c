"""What every attention backend is asked: to prepare a step, and to attend to the pages of a layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
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


class States(NamedTuple):
    """A layer's inputs for the tokens of one step: `query` `[1, heads, T, key_dim]`, `key` and `value` `[1, kv_heads, T, dim]`."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class Backend(Protocol):
    """Attention over pages that it holds. A backend derives from this class, and has its own `prepare` and `compute`."""

    cache: PagedCache
    captures: ClassVar[bool] = False
    """whether a step of decodes can be captured in a CUDA graph, and replayed for other rows once they are prepared: with the
    number of rows the capture had, after `reserve`"""

    @abstractmethod
    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        """Before a capture: make room for steps of so many rows and tokens, and sequences of `longest` tokens. No tensor that a step
        reads moves from then on."""

    @abstractmethod
    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        """What the layers need to know of a step: made once, and read by all of them. `padding`: rows of one token that follow the
        batch's, and whose results nobody wants."""

    def attend(
        self,
        step: Step,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        rules: Rules,
    ) -> torch.Tensor:
        """What a layer calls. The states are those of `States`, the result is that of `compute`."""
        pages = self.cache.layer(layer, key, value, rules.sliding_window)
        return self.compute(step, pages, States(query, key, value), rules)

    @abstractmethod
    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        """Write the step's keys and values to a layer's pages, and attend: `[T, heads, value_dim]`."""
