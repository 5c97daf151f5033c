"""The model on its device, as the engine's loop sees it: batches in, tokens out."""

from __future__ import annotations

from itertools import islice

import torch

from llmendpoint_server.core.batch import Batch, Sampled, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import accept
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling.sampler import Sampler


class ModelRunner:
    """`backend` has one page more than the scheduler, the last one. With `kernels` tokens are drawn by them."""

    def __init__(self, model: CausalLM, backend: Backend, kernels: Kernels | None = None) -> None:
        self.model = model
        self.backend = backend
        self._sample = Sampler(kernels)
        self._spare_page = backend.cache.pages - 1
        """outside the scheduler's pages: `check` uses it"""

    def run(self, batch: Batch) -> list[Sampled]:
        """Compute a batch. Returns the tokens of each row, in the batch's order."""
        step = self.backend.prepare(batch)
        logits = forward(self.model, self.backend, step)
        found: list[Sampled] = [()] * len(batch.rows)
        if step.sampled:
            rows = [batch.rows[place] for place in step.sampled]
            ahead = [(row.sequence, guessed) for row in rows for guessed in range(len(row.draft) + 1)]
            sequences = [sequence for sequence, _ in ahead]
            positions = [len(sequence.tokens) + guessed for sequence, guessed in ahead]
            with torch.inference_mode():
                tokens = iter(self._sample(logits, sequences, positions))
            for place, row in zip(step.sampled, rows, strict=True):
                found[place] = accept(row.draft, tuple(islice(tokens, len(row.draft) + 1)))
        return found

    def check(self) -> None:
        """Compute one token in a page that no request uses. An exception here is the device's fault, not a request's."""
        request = Request("check", (0,), SamplingParams(1, temperature=0))
        sequence = Sequence(request, seed=0, tokens=[0], names=[], table=[self._spare_page])
        self.run(Batch((Scheduled(sequence, 0, 1),), 0.0))
