"""Which requests the scheduler has, which of their sequences run, and how each leaves.

Each sequence is changed within `guard`, or where `expel` is called if anything is raised: that request ends and the others go on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from llmendpoint_server.core.batch import NOTHING, Fault, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.estimate import Lives
from llmendpoint_server.core.group import Group
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.queue import ORDER, WaitingQueue
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
        self.groups: dict[str, Group] = {}
        """by the request's id"""
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
            self.expel(sequence, error)
            return None

    def expel(self, sequence: Sequence, error: Exception) -> None:
        """End a request whose state is bad. The held pages are taken from the tables of the other requests, and all names of
        pages are dropped. If those tables are bad too, all requests end."""
        group = self.groups.pop(sequence.id, None)
        gone = [sequence] if group is None else group.members
        self.running = [other for other in self.running if other not in gone]
        for one in gone:
            self.waiting.discard(one)
            self._end_by_fault(one, FinishReason.FAILED, error)
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
        groups, self.groups = self.groups, {}
        for group in groups.values():
            for sequence in group.members:
                self._end_by_fault(sequence, FinishReason.LOST, error)

    def _end_by_fault(self, sequence: Sequence, reason: FinishReason, error: Exception) -> None:
        if sequence.status is Status.FINISHED:
            return
        if sequence.status is Status.RUNNING:
            self._lives.end()
        sequence.status = Status.FINISHED
        what = "failed on this request" if reason is FinishReason.FAILED else "lost this request"
        detail = f"The engine {what}: {type(error).__name__}."
        end = RequestOutput(sequence.id, finish=reason, detail=detail, index=sequence.index)
        self.faults.append(Fault(end, error))

    def add(self, group: Group) -> None:
        self.groups[group.request.id] = group
        for member in group.members:
            self.waiting.push(member)

    def begin(self, sequence: Sequence, now: float) -> None:
        """Move a waiting sequence, which has pages, to the running ones."""
        self.waiting.remove(sequence)
        sequence.began = sequence.began or now
        sequence.status = Status.RUNNING
        insort(self.running, sequence, key=ORDER)
        self.groups[sequence.id].begin()

    def preempt(self, sequence: Sequence) -> None:
        """Move a running sequence to the waiting ones. It loses its pages, and keeps its tokens."""
        self.running.remove(sequence)
        self._paging.give_back(sequence)
        sequence.status, sequence.decoding = Status.WAITING, False
        self.waiting.push(sequence)

    def end(
        self, request_id: str, reason: FinishReason, detail: str = "", index: int | None = None
    ) -> list[RequestOutput]:
        """End a request at once, or its one answer `index`: one end for each answer that has none. Empty if there is no
        such request, or it is in `faults`."""
        group = self.groups.get(request_id)
        if group is not None and index is not None:
            # If it is the one that computes the prompt, the others would wait for that forever.
            group.prompt_computed()
        ends = (
            []
            if group is None
            else [
                self.guard(self.finish, member, reason, NOTHING, detail)
                for member in list(group.members)
                if index in (None, member.index)
                and member.status is not Status.FINISHED  # a fault of the one before ends them all
            ]
        )
        return [end for end in ends if end is not None]

    def finish(
        self, sequence: Sequence, reason: FinishReason, sampled: Sampled = NOTHING, detail: str = ""
    ) -> RequestOutput:
        """End one answer, with its last tokens. Its pages are free on return."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
            self._paging.give_back(sequence)
            self._lives.end()
        else:
            self.waiting.remove(sequence)
        sequence.status = Status.FINISHED
        group = self.groups[sequence.id]
        group.members.remove(sequence)
        if not group.members:
            del self.groups[sequence.id]
        return output_of(sequence, sampled, reason, detail)


def output_of(
    sequence: Sequence, sampled: Sampled, finish: FinishReason | None = None, detail: str = ""
) -> RequestOutput:
    return RequestOutput(
        sequence.request.id, sampled.tokens, finish, sequence.cached_tokens, detail, 0.0,
        sampled.logprobs, sequence.index, sampled.prompt_logprobs,
    )  # fmt: skip
