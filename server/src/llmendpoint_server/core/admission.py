"""Whether a new request is taken, and if not, when it is worth to try again."""

from __future__ import annotations

from collections.abc import Sequence as Rows

from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.estimate import MAX_RETRY_AFTER, Lives, place_wait, retry_after
from llmendpoint_server.core.group import Group
from llmendpoint_server.core.pace import Pace
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.queue import WaitingQueue
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.sequence import Sequence

DEADLINE_PASSED = "its deadline passed while it waited"


class Admission:
    """`short_of_pages`: whether the first waiting request found no pages when it could have started."""

    def __init__(
        self,
        config: SchedulerConfig,
        queue: WaitingQueue[Sequence],
        lives: Lives,
        pace: Pace,
        paging: Paging,
        counters: Counters,
    ) -> None:
        self._config = config
        self._queue = queue
        self._lives = lives
        self._pace = pace
        self._paging = paging
        self._counters = counters
        self.short_of_pages = False

    def refusal(
        self, group: Group, running: Rows[Sequence], draining: bool, now: float
    ) -> RequestOutput | None:
        """Why the request may not wait; None if it may. One of its sequences fits in the pages; whether all do does not count:
        the others wait, or are preempted."""
        sequence, count = group.members[0], len(group.members)
        wrong = self._wrong(sequence.request)
        if wrong is not None:
            return RequestOutput(sequence.id, finish=FinishReason.FAILED, detail=wrong)
        if draining:
            return self._rejected(sequence, "draining", running)
        full = self._queue.full(max(self._config.max_num_seqs - len(running), 0), count)
        if full is not None:
            self._counters.refused_requests += 1
            return self._rejected(sequence, full.why, running, full.leave_first)
        too_long = self._queue.too_long(sum(member.due for member in group.members))
        if too_long is not None:
            self._counters.refused_tokens += 1
            return self._rejected(sequence, too_long.why, running, too_long.leave_first)
        if sequence.request.deadline is None:
            return None
        if not running and not len(self._queue) and sequence.request.deadline > now:
            return None  # it begins at once; if the prediction is wrong, this step corrects it
        return self._late(sequence, running, sequence.request.deadline - now)

    def _wrong(self, request: Request) -> str | None:
        length, limit = len(request.prompt), self._config.max_model_len
        if not 0 < length < limit:
            return f"The prompt has {length} tokens; it must have 1 to {limit - 1}."
        if not (min(request.prompt) >= 0 and max(request.prompt) < self._config.vocab_size):
            return f"The prompt has a token id outside 0 to {self._config.vocab_size - 1}."
        return None

    def _rejected(
        self, sequence: Sequence, why: str, running: Rows[Sequence], places: int = 1
    ) -> RequestOutput:
        wait = self.retry_after(running, places)
        return RequestOutput(sequence.id, finish=FinishReason.REJECTED, detail=why, retry_after=wait)

    def _late(self, sequence: Sequence, running: Rows[Sequence], left: float) -> RequestOutput | None:
        """A refusal if the first token is expected after the deadline, which is in `left` seconds."""
        decoding = sum(other.decoding for other in running)
        turn = self._turn(sequence, running, decoding)
        prompt = self._pace.seconds(len(sequence.tokens), decoding)
        if left < turn + prompt:  # only now, because it hashes the prompt
            prompt = self._pace.seconds(len(sequence.tokens) - self._paging.cached(sequence), decoding)
        if turn + prompt <= left:
            return None
        self._counters.deadlines_unreachable += 1
        if prompt > left:  # then no wait is enough
            return too_late(sequence.id, "computing this prompt takes", prompt, left, MAX_RETRY_AFTER)
        wait = turn + prompt
        return too_late(sequence.id, "the first token is expected in", wait, left, retry_after(wait - left))

    def _turn(self, sequence: Sequence, running: Rows[Sequence], decoding: int) -> float:
        """Seconds until the batch has a place for the sequence, and the prompts before it are computed."""
        requests, tokens = self._queue.ahead(sequence.order)
        free = 0 if self.short_of_pages else self._config.max_num_seqs - len(running)
        begun = sum(other.remaining for other in running if not other.decoding)
        prompts = begun + round(tokens * self._counters.uncached_share)
        return max(self._place_wait(running, requests + 1 - free), self._pace.seconds(prompts, decoding))

    def retry_after(self, running: Rows[Sequence], places: int = 1) -> float:
        return retry_after(self._place_wait(running, places))

    def _place_wait(self, running: Rows[Sequence], places: int) -> float:
        budget = self._config.max_batched_tokens
        fewest = min((sequence.steps_left(budget) for sequence in running), default=0)
        return place_wait(self._lives.mean_life, len(running), fewest, self._lives.step_seconds, places)


def too_late(request_id: str, what: str, seconds: float, left: float, again: float) -> RequestOutput:
    """The answer to a request whose deadline is in `left` seconds; `what` takes longer."""
    detail = f"{what} {1000 * seconds:.0f} ms, and the deadline is in {1000 * max(left, 0.0):.0f} ms"
    return RequestOutput(request_id, finish=FinishReason.EXPIRED, detail=detail, retry_after=again)
