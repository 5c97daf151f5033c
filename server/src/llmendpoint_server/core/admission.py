"""Whether a new request is taken, and if not, when it is worth to try again."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from llmendpoint_server import limits
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
DISPLACED = "a request of a higher priority took its place"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refusal`: why the request may not wait; None if it may. `displaced`: ids of the requests that leave for it."""

    refusal: RequestOutput | None = None
    displaced: tuple[str, ...] = ()


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

    def judge(self, group: Group, running: Rows[Sequence], draining: bool, now: float) -> Verdict:
        """Whether a request may wait. One of its sequences fits in the pages; whether all do does not count: the others wait,
        or are preempted."""
        sequence = group.members[0]
        wrong = self._wrong(sequence.request)
        if wrong is not None:
            return Verdict(RequestOutput(sequence.id, finish=FinishReason.FAILED, detail=wrong))
        if draining:
            return Verdict(self._rejected(sequence, "draining", running))
        places = max(self._config.max_num_seqs - len(running), 0)
        count, tokens = len(group.members), sum(member.due for member in group.members)
        full, too_long = self._queue.full(places, count), self._queue.too_long(tokens)
        bound = full or too_long
        gone = self._queue.displaced_by(sequence, count, tokens, places) if bound else []
        if bound and not gone:
            self._counters.count_refusal(by_requests=full is not None)
            return Verdict(self._rejected(sequence, bound.why, running, bound.leave_first))
        late = self._late(sequence, running, now)
        if late is not None:
            return Verdict(late)
        displaced = tuple(dict.fromkeys(other.id for other in gone))
        for _ in displaced:
            self._counters.count_refusal(by_requests=full is not None)
        return Verdict(displaced=displaced)

    def _wrong(self, request: Request) -> str | None:
        length, limit = len(request.prompt), self._config.max_model_len
        if not 0 < length < limit:
            return f"The prompt has {length} tokens; it must have 1 to {limit - 1}."
        if not (min(request.prompt) >= 0 and max(request.prompt) < self._config.vocab_size):
            return f"The prompt has a token id outside 0 to {self._config.vocab_size - 1}."
        sampling = request.sampling
        if any(not 0 <= token < self._config.vocab_size for token, _ in sampling.logit_bias):
            return f"logit_bias has a token id outside 0 to {self._config.vocab_size - 1}."
        if sampling.prompt_logprobs is not None:
            values, most = length * (1 + sampling.prompt_logprobs), limits.PROMPT_LOGPROBS_VALUES_MAX
            if values > most:
                return f"prompt_logprobs asks for {values} values, the prompt's tokens times {1 + sampling.prompt_logprobs}; at most {most} are given."
        return None

    def _rejected(
        self, sequence: Sequence, why: str, running: Rows[Sequence], places: int = 1
    ) -> RequestOutput:
        wait = self.retry_after(running, places)
        return RequestOutput(sequence.id, finish=FinishReason.REJECTED, detail=why, retry_after=wait)

    def _late(self, sequence: Sequence, running: Rows[Sequence], now: float) -> RequestOutput | None:
        """A refusal if the first token is expected after the deadline."""
        if sequence.request.deadline is None:
            return None
        left = sequence.request.deadline - now
        if not running and not len(self._queue) and left > 0:
            return None  # it begins at once; if the prediction is wrong, this step corrects it
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
