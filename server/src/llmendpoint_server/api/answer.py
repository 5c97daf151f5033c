"""One answer, from the engine's first output for it to its last piece."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from llmendpoint_server.api.deltas import AnswerReader, ToolCallBegun
from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.interfaces import Engine, Stream
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.pieces import Piece, Show
from llmendpoint_server.api.read_text import ReadText
from llmendpoint_server.api.record import Record, Times
from llmendpoint_server.api.responses import Usage
from llmendpoint_server.api.view import PLAIN, View
from llmendpoint_server.core.request import FinishReason, RequestOutput, TokenLogprobs
from llmendpoint_server.errors import (
    DeadlineExceeded,
    EngineEnded,
    EngineFailed,
    InvalidRequest,
    QueueFull,
    Unavailable,
)


@dataclass(frozen=True)
class Account:
    """What all answers of one body are counted in.

    `arrived`: when the body was whole, before it was tokenized (monotonic seconds). All that a caller waits for counts
    as latency.
    """

    engine: Engine
    metrics: Metrics
    record: Record
    usage: Usage
    arrived: float
    grammar_field: str | None = None
    """of the body, which has the grammar"""


MOST_HELD = 64
"""Tokens that are shown, at the latest, though they brought no text."""


def check(output: RequestOutput, engine: Engine, grammar_field: str | None = None) -> None:
    """Raises QueueFull, DeadlineExceeded, Unavailable, EngineFailed or InvalidRequest if the request has ended by one of them."""
    match output.finish:
        case FinishReason.REJECTED if engine.state == "ready":
            message = f"The queue is full: {output.detail}. Try again after the seconds in Retry-After."
            raise QueueFull(message, retry_after=output.retry_after)
        case FinishReason.EXPIRED:
            message = (
                f"The deadline cannot be met: {output.detail}. Try again after the seconds in Retry-After."
            )
            raise DeadlineExceeded(message, retry_after=output.retry_after)
        case FinishReason.REJECTED:
            raise Unavailable(f"This replica is {engine.state}. Try again.", retry_after=1.0)
        case FinishReason.LOST:
            raise Unavailable(f"{output.detail} Try again.", retry_after=1.0)
        case FinishReason.FAILED if engine.failure() is not None:
            raise EngineEnded(output.detail)
        case FinishReason.FAILED:
            raise EngineFailed(output.detail or "The engine could not compute this request.")
        case FinishReason.GRAMMAR:  # no 5xx: whoever counts those would take the replica for ill
            raise InvalidRequest(output.detail, param=grammar_field)
        case FinishReason.ABORTED:
            raise EngineFailed("The request was cancelled.")
        case _:
            pass


class Answer:
    """Reads one answer of a request. `index`: among all answers of the body."""

    def __init__(
        self,
        index: int,
        stream: Stream,
        text: TextStream,
        account: Account,
        reader: AnswerReader | None = None,
        view: View = PLAIN,
    ) -> None:
        self._index, self._stream = index, stream
        self._text = ReadText(text, reader, by_token=reader is not None and view.logprobs)
        self._account, self._view = account, view
        self._usage, self._metrics = account.usage, account.metrics
        self._plain = reader is None and not view.tokens
        self._echo = view.echo
        self._first: RequestOutput | None = None
        self._show: Show = lambda _: True
        self._last_token = account.arrived
        self._first_token_s: float | None = None
        self._count = 0
        """tokens so far"""
        self._cached = 0
        self._calls = False
        """the reader has found a call of a tool"""
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        """of the tokens since the last piece, if they are shown"""
        self.ended = False

    async def begin(self) -> None:
        """Wait for the first output. Raises QueueFull, DeadlineExceeded, Unavailable, EngineFailed or InvalidRequest; nothing has
        been shown then."""
        output = await self._stream.next()
        check(output, self._account.engine, self._account.grammar_field)
        self._first = output

    async def read(self, show: Show, keep_up: Callable[[], Awaitable[None]]) -> None:
        """Give the answer to `show` as it becomes certain, to its last piece. When `show` takes no more for now, wait for
        `keep_up`. Raises EngineFailed in the middle if the engine fails."""
        self._show = show
        if (first := self._first) is not None:
            self._first = None
            if not self._take(first) and not self.ended:
                await keep_up()
        while not self.ended:
            await self._stream.read(self._take)
            if not self.ended:
                await keep_up()

    def close(self) -> None:
        self._stream.close()

    @property
    def times(self) -> Times | None:
        """None if it has no token."""
        stream = self._stream
        if not stream.began:
            return None
        last = max(self._last_token, stream.first_token)
        return Times(self._account.arrived, stream.began, stream.first_token, last)

    @property
    def prompt_scores(self) -> Sequence[TokenLogprobs | None]:
        """The engine gives those of a prompt once, for all answers to it."""
        return self._stream.answers[0].prompt_logprobs

    def _take(self, output: RequestOutput) -> bool:
        if self._echo:
            self._echo = False
            self._show_prompt()
            if self._view.prompt_only:
                self._end("", "length", None)
                return False
        # The other answers to a prompt share the pages of the first one by design.
        if output.cached_tokens > self._cached and not output.index:
            self._usage.cached_tokens += output.cached_tokens - self._cached
            self._cached = output.cached_tokens
        if output.finish is not None:
            self._take_last(output)
            return False
        text = self._advance(output)
        if self._text.stopped:
            self._end(text, "stop", self._text.stop)
            return False
        if not text and len(self._tokens) < MOST_HELD:
            return True
        return self._show(Piece(self._index, text)) if self._plain else self._show_text(text)

    def _show_prompt(self) -> None:
        view = self._view
        tokens = view.prompt_of(self._index) if view.tokens else ()
        scores = tuple(self.prompt_scores) if view.logprobs else ()
        text = view.prompt_text_of(self._index)
        self._show(Piece(self._index, text, tokens=tokens, logprobs=scores, echo=True))

    def _advance(self, output: RequestOutput, ending: int = 0) -> str:
        """The text that became certain. `ending`: tokens at the end that have no text, and count. The engine knows no
        stop strings: closing the stream aborts the answer there. Tokens after a stop string that arrived with it are
        not counted: how many there are depends on load."""
        text, taken = self._text.push(output.tokens, ending)
        self._measure(taken)
        if self._view.tokens:
            self._tokens += output.tokens[:taken]
            self._logprobs += output.logprobs[:taken]
        return text

    def _measure(self, tokens: int) -> None:
        if not tokens:
            return
        now = time.monotonic()
        if self._count:
            # Tokens that arrive together share the time.
            self._metrics.inter_token.observe((now - self._last_token) / tokens, tokens)
        else:
            record = self._account.record
            self._first_token_s = spent = now - self._account.arrived
            self._metrics.first_token.observe(spent)
            if record.first_token_s is None:
                record.first_token_s = spent
        self._last_token = now
        self._count += tokens
        self._usage.completion_tokens += tokens

    def _take_last(self, output: RequestOutput) -> None:
        """Show the rest of the text, and the finish reason. If the request has failed, show what became certain before,
        and raise."""
        ended_by_token = output.finish is FinishReason.STOP
        text = self._advance(output, 1 if ended_by_token and not self._view.include_stop else 0)
        if self._text.stopped:
            self._end(text, "stop", self._text.stop)
            return
        if not ended_by_token and output.finish is not FinishReason.LENGTH:
            if text:
                self._show_text(text)
            check(output, self._account.engine, self._account.grammar_field)
        text += self._text.finish()
        if (stop := self._text.stop) is not None:
            self._end(text, "stop", stop)
        elif ended_by_token:
            token = output.tokens[-1]
            self._end(text, "stop", token if token in self._view.stop_tokens else None)
        else:
            self._end(text, "length", None)

    def _show_text(self, text: str) -> bool:
        if self._text.undecided and len(self._tokens) < MOST_HELD:
            return True
        return self._show(self._piece(text))

    def _piece(self, text: str, reason: str | None = None, stop: str | int | None = None) -> Piece:
        deltas, decided = self._text.take()
        self._calls = self._calls or any(isinstance(delta, ToolCallBegun) for delta in deltas or ())
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        tokens, logprobs = tuple(self._tokens), tuple(self._logprobs)
        piece = Piece(self._index, text, reason, stop, deltas, tokens, logprobs, decided=decided)
        self._tokens.clear()
        self._logprobs.clear()
        return piece

    def _end(self, text: str, reason: str, stop: str | int | None) -> None:
        self.ended = True
        self._stream.close()  # if a stop string ended it, the engine goes on
        self._text.close()
        self._usage.reasoning_tokens += self._text.thoughts
        piece = self._piece(text, reason, stop)
        self._count_end(reason)
        self._show(piece)

    def _count_end(self, reason: str) -> None:
        account = self._account
        spent = time.monotonic() - account.arrived
        account.record.finish = reason
        self._metrics.count_finished(reason)
        self._metrics.end_to_end.observe(spent)
        if self._count > 1 and self._first_token_s is not None:
            after_first = spent - self._first_token_s
            self._metrics.per_output_token.observe(after_first / (self._count - 1))
