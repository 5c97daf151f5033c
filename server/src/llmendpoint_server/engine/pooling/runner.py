"""The model on its device, as the loop for vectors sees it: inputs in, vectors out.

Each pass is a padded batch `[rows, longest]` with its mask, through transformers' own forward. So a model is served as it
is, whether its tokens see those after them or not.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from llmendpoint_server.core.pooling.padding import passes
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.engine.pooling.task import Pooling


class Head:
    """Makes vectors `[rows, size]` of a pass's output."""

    def __call__(self, output: Any, mask: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Embedding(Head):
    def __init__(self, pooling: Pooling) -> None:
        self._pooling = pooling

    def __call__(self, output: Any, mask: torch.Tensor) -> torch.Tensor:
        hidden = output.last_hidden_state
        lengths = mask.sum(dim=1)
        match self._pooling.kind:
            case "cls":
                vectors = hidden[:, 0].float()
            case "last":
                rows = torch.arange(len(lengths), device=lengths.device)
                vectors = hidden[rows, lengths - 1].float()
            case "mean":
                shown = mask.unsqueeze(-1).float()
                # Not a product alone: what is computed for padding may be no number.
                hidden = hidden.float().masked_fill(shown == 0, 0.0)
                vectors = hidden.sum(dim=1) / lengths.unsqueeze(-1)
        return functional.normalize(vectors, dim=-1) if self._pooling.normalize else vectors


class Score(Head):
    def __init__(self, sigmoid: bool) -> None:
        self._sigmoid = sigmoid

    def __call__(self, output: Any, mask: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = output.logits.float()
        return logits.sigmoid() if self._sigmoid else logits


class PoolingRunner:
    """`most_tokens`: of one pass, padding included."""

    def __init__(self, model: Any, head: Head, device: torch.device, pad: int) -> None:
        self._model, self._head, self._device, self._pad = model, head, device, pad
        self.most_tokens = 2**14
        types = int(getattr(model.config, "type_vocab_size", 0) or 0)
        self._typed = types > 1 and "token_type_ids" in inspect.signature(model.forward).parameters

    def run(self, inputs: Sequence[Input]) -> list[bytes | None]:
        """A vector for each input; None where it is not a number."""
        found: list[bytes | None] = [None] * len(inputs)
        for places in passes([len(one.tokens) for one in inputs], self.most_tokens):
            vectors = self.vectors([inputs[place] for place in places])
            finite = vectors.isfinite().all(dim=1).tolist()
            for place, vector, good in zip(places, vectors.numpy(), finite, strict=True):
                found[place] = vector.tobytes() if good else None
        return found

    def vectors(self, inputs: Sequence[Input]) -> torch.Tensor:
        """`[inputs, size]` in float32 on the CPU, by one pass."""
        longest = max(len(one.tokens) for one in inputs)
        rows = [[*one.tokens] + [self._pad] * (longest - len(one.tokens)) for one in inputs]
        seen = [[1] * len(one.tokens) + [0] * (longest - len(one.tokens)) for one in inputs]
        mask = torch.tensor(seen, device=self._device)
        arguments = {"input_ids": torch.tensor(rows, device=self._device), "attention_mask": mask}
        if self._typed:
            arguments["token_type_ids"] = torch.tensor(
                [_types(one, longest) for one in inputs], device=self._device
            )
        with torch.inference_mode():
            return self._head(self._model(**arguments), mask).cpu()

    def check(self) -> None:
        """Compute one token that belongs to no request. An exception here is the device's fault, not a request's."""
        self.vectors([Input((0,))])


def _types(one: Input, longest: int) -> list[int]:
    if not one.second:
        return [0] * longest
    second = len(one.tokens) - one.second
    return [0] * one.second + [1] * second + [0] * (longest - len(one.tokens))
