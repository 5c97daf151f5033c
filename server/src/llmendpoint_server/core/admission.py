"""Whether a new request is taken, and if not, when it is worth to try again."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import TYPE_CHECKING

from llmendpoint_server.core.estimate import Lives, retry_after
from llmendpoint_server.core.queue import WaitingQueue
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.sequence import Sequence

if TYPE_CHECKING:
    from llmendpoint_server.core.scheduler import SchedulerConfig


class Admission:
    def __init__(self, config: SchedulerConfig, queue: WaitingQueue, lives: Lives) -> None:
        self._config = config
        self._queue = queue
        self._lives = lives

    def refusal(
        self, sequence: Sequence, running: Rows[Sequence], draining: bool
    ) -> RequestOutput | None:
        """Why the request is not taken; None if it is."""
        request = sequence.request
        wrong = self._wrong(request)
        if wrong is not None:
            return RequestOutput(request.id, finish=FinishReason.FAILED, detail=wrong)
        full = "draining" if draining else self._queue.full(max(self._config.max_num_seqs - len(running), 0))
        if full is not None:
            wait = self._retry_after(running)
            return RequestOutput(request.id, finish=FinishReason.REJECTED, detail=full, retry_after=wait)
        return None

    def _wrong(self, request: Request) -> str | None:
        length, limit = len(request.prompt), self._config.max_model_len
        if not 0 < length < limit:
            return f"The prompt has {length} tokens; it must have 1 to {limit - 1}."
        if not (min(request.prompt) >= 0 and max(request.prompt) < self._config.vocab_size):
            return f"The prompt has a token id outside 0 to {self._config.vocab_size - 1}."
        return None

    def _retry_after(self, running: Rows[Sequence]) -> float:
        budget = self._config.max_batched_tokens
        fewest = min((sequence.steps_left(budget) for sequence in running), default=0)
        return retry_after(self._lives.mean_life, len(running), fewest, self._lives.step_seconds)
