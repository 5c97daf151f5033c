"""The model on its device, as the engine's loop sees it: batches in, tokens out."""

from __future__ import annotations

from itertools import islice

import torch

from llmendpoint_server.core.batch import NOTHING, Batch, Sampled, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import accept
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.graphs import Graphs, Recorder
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling.logprobs import with_logprobs
from llmendpoint_server.engine.sampling.sampler import Sampler
from llmendpoint_server.engine.step import Step


class ModelRunner:
    """`backend` has one page more than the scheduler, the last one. With `kernels` tokens are drawn by them."""

    def __init__(self, model: CausalLM, backend: Backend, kernels: Kernels | None = None) -> None:
        self.model = model
        self.backend = backend
        self._sample = Sampler(kernels)
        self._spare = spare_row(backend.cache.pages - 1)
        self._graphs: Graphs | None = None

    def capture(self, recorder: Recorder, rows: int, tokens: int, longest: int) -> None:
        """Compute decode steps of up to `rows` rows by CUDA graphs from now on, if the model can be captured. `tokens`: of the
        largest step. `longest`: tokens of the longest sequence."""
        graphs = Graphs(self.model, self.backend, self._spare, rows)
        self.backend.reserve(max(rows, graphs.sizes[-1]), tokens, longest)
        if graphs.capture(recorder):
            self._graphs = graphs

    def run(self, batch: Batch) -> list[Sampled]:
        """Compute a batch. Returns what each row got, in the batch's order."""
        if self._graphs is not None and self._graphs.fit(batch):
            step, drawn = self._graphs.run(batch)
            logits = self._graphs.logits
        else:
            step = self.backend.prepare(batch)
            logits = forward(self.model, self.backend, step)
            drawn = self._drawn(logits, step, batch)
        found: list[Sampled] = [NOTHING] * len(batch.rows)
        if step.sampled:
            rows = [batch.rows[place] for place in step.sampled]
            tokens = iter(drawn)
            new = [Sampled(accept(row.draft, tuple(islice(tokens, len(row.draft) + 1)))) for row in rows]
            with torch.inference_mode():
                new = with_logprobs(logits, rows, new)
            for place, one in zip(step.sampled, new, strict=True):
                found[place] = one
        return found

    def _drawn(self, logits: torch.Tensor, step: Step, batch: Batch) -> list[int]:
        """A token for each of the step's `logit_rows`, whose `logits` these are."""
        rows = [batch.rows[place] for place in step.sampled]
        ahead = [(row.sequence, guessed) for row in rows for guessed in range(len(row.draft) + 1)]
        positions = [len(sequence.tokens) + guessed for sequence, guessed in ahead]
        with torch.inference_mode():
            return self._sample(logits, [sequence for sequence, _ in ahead], positions) if rows else []

    def check(self) -> None:
        """Compute one token in a page that no request uses. An exception here is the device's fault, not a request's."""
        self.run(Batch((self._spare,), 0.0))


def spare_row(page: int) -> Scheduled:
    """One token in a page that no request uses."""
    request = Request("spare", (0,), SamplingParams(1, temperature=0))
    return Scheduled(Sequence(request, seed=0, tokens=[0], names=[], table=[page]), 0, 1)
