"""Which sequences the scheduler has, which of them run, and how each leaves.

Each sequence is changed within `guard`: if anything is raised there, that request ends and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from llmendpoint_server.core.batch import NOTHING, Fault, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.estimate import Lives
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.queue import WaitingQueue
from llmendpoint_server.core.request import FinishReason, RequestOutput
from llmendpoint_server.core.sequence import Sequence, Status

P = ParamSpec("P")
T = TypeVar("T")


class Members:
    def __init__(
        self, blocks: BlockManager, paging: Paging, waiting: WaitingQueue[Sequence], lives: Lives
    ) -> None:
        self._blocks = blocks
        self._paging = paging
        self._lives = lives
        self.waiting = waiting
        self.running: list[Sequence] = []
        """in the order of the queue: the last one is preempted first"""
        self.by_id: dict[str, Sequence] = {}
        self.faults: list[Fault] = []

    def guard(
        self,
        change: Callable[Concatenate[Sequence, P], T],
        sequence: Sequence,
        *args: P.args,
        **options: P.kwargs,
    ) -> T | None:
        """Change one sequence. If anything is raised, that request ends, in `faults`, and the result is None."""
        try:
            return change(sequence, *args, **options)
        except Exception as error:  # any: this request's state is bad; it ends, and the others stay
            self._expel(sequence, error)
            return None

    def _expel(self, sequence: Sequence, error: Exception) -> None:
        """End a request whose state is bad. The held pages are taken from the tables of the other sequences, and all
        names of pages are dropped. If those tables are bad too, all requests end."""
        self.running = [other for other in self.running if other is not sequence]
        self.waiting.discard(sequence)
        self._end_by_fault(sequence, FinishReason.FAILED, error)
        try:
            self._blocks.restart(page for other in self.running for page in other.held)
        except Exception as second:  # any: the others' tables are bad too, so all requests end
            self.reset(second)

    def reset(self, error: Exception) -> None:
        """End all requests, in `faults`, and start anew with all pages free: `error` does not show which one is at
        fault."""
        self.running = []
        self.waiting.clear()
        self._blocks.restart(())
        for sequence in list(self.by_id.values()):
            self._end_by_fault(sequence, FinishReason.LOST, error)

    def _end_by_fault(self, sequence: Sequence, reason: FinishReason, error: Exception) -> None:
        if sequence.status is Status.RUNNING:
            self._lives.end()
        sequence.status = Status.FINISHED
        if self.by_id.pop(sequence.id, None) is not None:
            what = "failed on this request" if reason is FinishReason.FAILED else "lost this request"
            detail = f"The engine {what}: {type(error).__name__}."
            self.faults.append(Fault(RequestOutput(sequence.id, finish=reason, detail=detail), error))

    def preempt(self, sequence: Sequence) -> None:
        """Move a running sequence to the waiting ones. It loses its pages, and keeps its tokens."""
        self.running.remove(sequence)
        self._paging.give_back(sequence)
        sequence.status, sequence.decoding = Status.WAITING, False
        self.waiting.push(sequence)

    def end(self, request_id: str, reason: FinishReason, detail: str = "") -> RequestOutput | None:
        """End a request at once. None if there is no such request, or it is in `faults`."""
        sequence = self.by_id.get(request_id)
        return None if sequence is None else self.guard(self.finish, sequence, reason, NOTHING, detail)

    def finish(
        self, sequence: Sequence, reason: FinishReason, sampled: Sampled = NOTHING, detail: str = ""
    ) -> RequestOutput:
        """End a sequence, with its last tokens. Its pages are free on return."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
            self._paging.give_back(sequence)
            self._lives.end()
        else:
            self.waiting.remove(sequence)
        sequence.status = Status.FINISHED
        del self.by_id[sequence.id]
        return RequestOutput(
            sequence.id, sampled.tokens, reason, sequence.cached_tokens, detail, logprobs=sampled.logprobs
        )
