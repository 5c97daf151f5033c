"""The stages in their order, for the rows of one step."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling import in_torch
from llmendpoint_server.engine.sampling.changes import Changes, Line
from llmendpoint_server.engine.sampling.in_kernel import InKernel
from llmendpoint_server.engine.sampling.masking import force_ends, rule_out
from llmendpoint_server.engine.sampling.masks import NONE, Mask
from llmendpoint_server.engine.sampling.rows import Rows, RowsOfBatch, noise_of, rows_of

CHANGED_AT_ONCE = {"cpu": 2**22, "cuda": 2**24}
"""Rows whose logits change are copied in slices of at most this many logits, 16 MB and 64 MB, but at least one row."""


class Sampler:
    """Draws one token a row, by the CPU kernel if there are `kernels` and it takes the logits, else in torch: the same tokens. Keeps
    the arrays of a batch's parameters from step to step."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self._rows_of = RowsOfBatch()
        self._kernel = InKernel(kernels) if kernels is not None else None
        self._changes = Changes()
        self._params: list[SamplingParams] = []
        self._changed: list[int] = []

    def __call__(
        self,
        logits: torch.Tensor,
        sequences: Row[Sequence],
        guesses: Row[Tokens] | None = None,
        masks: Mapping[Sequence, Mask] = NONE,
    ) -> list[int]:
        """One token id per row of `logits` `[rows, vocabulary]`; `NOT_A_NUMBER` for a row that is not finite. `guesses`: what stands
        between each sequence and the row's token; None: nothing. `masks`: of the sequences with a grammar. Leaves the logits as they are."""
        lines = guesses or [()] * len(sequences)
        if len(self._changed_of(sequences)) == len(sequences):
            return self.redraw(logits, sequences, [0] * len(sequences), lines, masks)
        rows, noise = self._rows_of(sequences, logits.device, lines)
        return self.redraw(logits, sequences, self._draw(logits, rows, noise).tolist(), lines, masks)

    def redraw(
        self,
        logits: torch.Tensor,
        sequences: Row[Sequence],
        tokens: list[int],
        guesses: Row[Tokens],
        masks: Mapping[Sequence, Mask] = NONE,
    ) -> list[int]:
        """`tokens`, in which the rows whose requests change the logits have theirs."""
        changed = self._changed_of(sequences)
        at_once = max(1, CHANGED_AT_ONCE[logits.device.type] // logits.shape[1])
        for start in range(0, len(changed), at_once):
            some = changed[start : start + at_once]
            lines = [Line(sequences[place], guesses[place]) for place in some]
            own = logits[some].float()  # a copy, as a list of indices gives
            rule_out(own, lines, masks)
            self._changes.apply(own, lines)
            force_ends(own, lines, masks)
            params = rows_of([line.sequence.request.sampling for line in lines], own.device)
            noise = noise_of([line.sequence for line in lines], [line.guesses for line in lines], own.device)
            drawn = self._draw(own, params, noise)
            for place, token in zip(some, drawn.tolist(), strict=True):
                tokens[place] = token
        return tokens

    def _draw(self, logits: torch.Tensor, rows: Rows, noise: torch.Tensor) -> torch.Tensor:
        if self._kernel is not None and self._kernel.takes(logits):
            return self._kernel.tokens_of(logits, rows, noise)
        return in_torch.tokens_of(logits, rows, noise)

    def _changed_of(self, sequences: Row[Sequence]) -> list[int]:
        """The rows whose requests change the logits; looked up only if the parameters differ from those of the step before."""
        params = [sequence.request.sampling for sequence in sequences]
        if params != self._params:
            self._params = params
            self._changed = [place for place, one in enumerate(params) if one.changes_logits]
        return self._changed
