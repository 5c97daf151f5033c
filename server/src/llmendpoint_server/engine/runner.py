"""The model on its device, as the engine's loop sees it: batches in, tokens out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import torch
from msgspec.structs import replace

from llmendpoint_server.core.batch import NOTHING, Batch, Sampled, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import accept
from llmendpoint_server.engine.adapters.stack import Stack
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.graphs import Graphs, Launched, Recorder
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.parallel.ranks import Ranks
from llmendpoint_server.engine.sampling.logprobs import of_prompts, with_logprobs
from llmendpoint_server.engine.sampling.masks import Mask, Masks
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.step import Step


class ModelRunner:
    """`backend` has one page more than the scheduler, the last one. With `kernels` tokens are drawn by them. Without `masks` no
    request may have a grammar. `ranks`: those that compute the model together with this process."""

    def __init__(
        self,
        model: CausalLM,
        backend: Backend,
        kernels: Kernels | None = None,
        masks: Masks | None = None,
        stack: Stack | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.model = model
        self.backend = backend
        self._sample = Sampler(kernels)
        self._spare = spare_row(backend.cache.pages - 1)
        self._graphs: Graphs | None = None
        self.masks = masks
        self.stack = stack
        """of adapters; None: no row may have one"""
        self.ranks = ranks

    def capture(self, recorder: Recorder, rows: int, tokens: int, longest: int) -> None:
        """Compute decode steps of up to `rows` rows by CUDA graphs from now on, if the model can be captured. `tokens`: of the
        largest step. `longest`: tokens of the longest sequence."""
        graphs = Graphs(self.model, self.backend, self._spare, rows)
        self.backend.reserve(max(rows, graphs.sizes[-1]), tokens, longest)
        if graphs.capture(recorder):
            self._graphs = graphs

    def run(self, batch: Batch) -> list[Sampled]:
        """Compute a batch. Returns what each row got, in the batch's order."""
        step, logits, drawn, masks = self._computed(batch)
        rows = [batch.rows[place] for place in step.sampled]
        if batch.drafted:
            tokens = iter(drawn)
            new = [Sampled(accept(row.draft, tuple(islice(tokens, len(row.draft) + 1)))) for row in rows]
        else:
            new = [Sampled((token,)) for token in drawn]
        found: list[Sampled] = [NOTHING] * len(batch.rows)
        with torch.inference_mode():
            for place, one in zip(step.sampled, with_logprobs(logits, rows, new), strict=True):
                found[place] = one
            for place in step.sampled if masks else ():
                mask = masks.get(batch.rows[place].sequence)
                if mask is not None and mask.fault:
                    found[place] = replace(found[place], fault=mask.fault)
            if step.scored:
                scored = [batch.rows[place] for place in step.scored]
                for place, told in zip(step.scored, of_prompts(logits[len(drawn) :], scored), strict=True):
                    found[place] = replace(found[place], prompt_logprobs=told)
        return found

    def launch(self, batch: Batch, after: Launched | None = None) -> Launched | None:
        """Begin a batch, if a graph gives all of its tokens; else None. `after`: the batch that was launched last, if its tokens are
        those that this one computes."""
        graphs = self._graphs
        if graphs is None or not graphs.fit(batch):
            return None
        asked = [] if after is not None else [row.sequence.request.sampling for row in batch.rows]
        if any(one.logprobs is not None or one.changes_logits for one in asked):
            return None
        return graphs.launch(batch, after)

    def result(self, launched: Launched) -> list[Sampled]:
        """What each row got, in the batch's order. Waits for the device."""
        found: list[Sampled] = [NOTHING] * len(launched.sequences)
        for place, token in zip(launched.step.sampled, launched.tokens(), strict=True):
            found[place] = Sampled((token,))
        return found

    def _computed(self, batch: Batch) -> tuple[Step, torch.Tensor, list[int], Mapping[Sequence, Mask]]:
        """The step, its logits, a token for each of their rows that belongs to a row that samples, the first ones, and what
        the sequences with a grammar were allowed."""
        pending = self.masks.begin(batch.rows) if self.masks is not None else None
        graphs = self._graphs if self._graphs is not None and self._graphs.fit(batch) else None
        if graphs is not None:
            step, drawn = graphs.run(batch)
            logits = graphs.logits
        else:
            step = self.backend.prepare(batch)
            logits = self._together(batch, step)
        rows = [batch.rows[place] for place in step.sampled]
        if batch.drafted:
            lines = [(row.sequence, row.draft[:place]) for row in rows for place in range(len(row.draft) + 1)]
            sequences, guesses = [sequence for sequence, _ in lines], [guessed for _, guessed in lines]
        else:
            sequences, guesses = [row.sequence for row in rows], [()] * len(rows)
        masks = pending.result() if pending is not None else {}
        with torch.inference_mode():
            if graphs is not None:
                drawn = self._sample.redraw(logits, sequences, drawn, guesses, masks)
            else:
                drawn = self._sample(logits[: len(sequences)], sequences, guesses, masks) if sequences else []
        return step, logits, drawn, masks

    def _together(self, batch: Batch, step: Step) -> torch.Tensor:
        if self.ranks is None:
            return self._forward(step)
        return self.ranks.together(batch, lambda: self._forward(step))

    def _forward(self, step: Step) -> torch.Tensor:
        if self.stack is None:
            return forward(self.model, self.backend, step)
        self.stack.begin(step.rows)
        try:
            return forward(self.model, self.backend, step)
        finally:
            self.stack.end()

    def check(self) -> None:
        """Compute one token in a page that no request uses. An exception here is the device's fault, not a request's."""
        self.run(Batch((self._spare,), 0.0))


def spare_row(page: int) -> Scheduled:
    """One token in a page that no request uses."""
    request = Request("spare", (0,), SamplingParams(1, temperature=0))
    return Scheduled(Sequence(request, seed=0, tokens=[0], names=[], table=[page]), 0, 1)
