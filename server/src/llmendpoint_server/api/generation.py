"""One completion from the parsed body to its last event; the same for chat and text, streamed or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.interfaces import Engine, Stream
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.record import Record, Times
from llmendpoint_server.api.responses import Usage
from llmendpoint_server.core.request import FinishReason, RequestOutput
from llmendpoint_server.errors import (
    DeadlineExceeded,
    EngineEnded,
    EngineFailed,
    QueueFull,
    Unavailable,
)

Show = Callable[[str, str | None], bool]
"""Takes text that became certain, and with the last piece the finish reason in OpenAI's word. Returns whether it takes
another piece now."""


class Generation:
    """Runs one request. `begin` waits for the first token, so that a refusal still has its own HTTP status.

    `arrived`: when the body was whole, before it was tokenized (monotonic seconds). All that a caller waits for counts
    as latency.
    """

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        text: TextStream,
        usage: Usage,
        metrics: Metrics,
        record: Record,
        arrived: float,
    ) -> None:
        self._engine, self._stream, self._text = engine, stream, text
        self._metrics, self._record = metrics, record
        self._first: RequestOutput | None = None
        self._started = self._last_token = arrived
        self.usage = usage

    async def begin(self) -> None:
        """Wait for the first output. Raises QueueFull, DeadlineExceeded, Unavailable or EngineFailed; nothing has been
        sent to the caller then."""
        output = await self._stream.next()
        self._check(output)
        self._first = output

    def _check(self, output: RequestOutput) -> None:
        match output.finish:
            case FinishReason.REJECTED if self._engine.state == "ready":
                message = f"The queue is full: {output.detail}. Try again after the seconds in Retry-After."
                raise QueueFull(message, retry_after=output.retry_after)
            case FinishReason.EXPIRED:
                message = f"The deadline cannot be met: {output.detail}. Try again after the seconds in Retry-After."
                raise DeadlineExceeded(message, retry_after=output.retry_after)
            case FinishReason.REJECTED:
                raise Unavailable(f"This replica is {self._engine.state}. Try again.", retry_after=1.0)
            case FinishReason.LOST:
                raise Unavailable(f"{output.detail} Try again.", retry_after=1.0)
            case FinishReason.FAILED if self._engine.failure() is not None:
                raise EngineEnded(output.detail)
            case FinishReason.FAILED:
                raise EngineFailed(output.detail or "The engine could not compute this request.")
            case FinishReason.ABORTED:
                raise EngineFailed("The request was cancelled.")
            case _:
                pass

    def _measure(self, tokens: int) -> None:
        if not tokens:
            return
        now = time.monotonic()
        if self.usage.completion_tokens == 0:
            self._record.first_token_s = now - self._started
            self._metrics.first_token.observe(now - self._started)
        else:
            # Tokens that arrive together share the time.
            self._metrics.inter_token.observe((now - self._last_token) / tokens, tokens)
        self._last_token = now
        self.usage.completion_tokens += tokens

    async def read(self, show: Show) -> None:
        """Give the answer to `show` as it becomes certain, until `show` returns False or has the last piece. Raises
        EngineFailed in the middle if the engine fails."""

        def take(output: RequestOutput) -> bool:
            if output.cached_tokens:
                self.usage.cached_tokens = max(self.usage.cached_tokens, output.cached_tokens)
            if output.finish is None:
                text = self._advance(output.tokens)
                if not self._text.stopped:
                    return show(text, None) if text else True
                reason = "stop"
            else:
                text, reason = self._take_last(output, show)
            self._finish(reason)
            show(text, reason)
            return False

        if (first := self._first) is not None:
            self._first = None
            if not take(first):
                return
        await self._stream.read(take)

    def _advance(self, tokens: Sequence[int], ending: int = 0) -> str:
        """The text that became certain. `ending`: tokens after these that have no text, and count. The engine knows no
        stop strings: closing the stream aborts the request there. Tokens after a stop string that arrived with it are
        not counted: how many there are depends on load."""
        text, taken = self._text.push(tokens)
        self._measure(taken if self._text.stopped else taken + ending)
        return text

    def _take_last(self, output: RequestOutput, show: Show) -> tuple[str, str]:
        """The rest of the text, and the finish reason. If the request has failed, shows what became certain before, and
        raises."""
        ended_by_token = output.finish is FinishReason.STOP
        text = self._advance(output.tokens[:-1], 1) if ended_by_token else self._advance(output.tokens)
        if self._text.stopped:
            return text, "stop"
        if not ended_by_token and output.finish is not FinishReason.LENGTH:
            if text:
                show(text, None)
            self._check(output)
        text += self._text.finish()
        return text, "stop" if ended_by_token or self._text.stopped else "length"

    def _finish(self, reason: str) -> None:
        spent = time.monotonic() - self._started
        self._record.finish = reason
        self._metrics.count_finished(reason)
        self._metrics.end_to_end.observe(spent)
        if self.usage.completion_tokens > 1 and self._record.first_token_s is not None:
            after_first = spent - self._record.first_token_s
            self._metrics.per_output_token.observe(after_first / (self.usage.completion_tokens - 1))

    def mark_failed(self) -> None:
        self._record.finish = "error"

    def close(self) -> None:
        """Free everything in the engine. Must be called when nothing more will be read, however it ended."""
        self._stream.close()
        record, usage = self._record, self.usage
        record.output_tokens, record.cached_tokens = usage.completion_tokens, usage.cached_tokens
        if (stream := self._stream).began:
            record.times = Times(self._started, stream.began, stream.first_token, self._last_token)
        if not record.finish:
            record.finish = "abort"
            self._metrics.count_finished("abort")


async def collect(generation: Generation) -> tuple[str, str]:
    """The whole answer and its finish reason."""
    parts: list[str] = []
    reason = ""

    def show(text: str, finish: str | None) -> bool:
        nonlocal reason
        parts.append(text)
        reason = finish or ""
        return True

    await generation.read(show)
    return "".join(parts), reason
