"""The outputs of one answer of a request, from the engine's side of the API process to the answer's."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

from llmendpoint_server.core.pooling.request import Vector
from llmendpoint_server.core.request import FinishReason, RequestOutput, TokenLogprobs

UNREAD_TOKENS_MAX = 2**16
"""Of one answer, 8 bytes each. A caller that reads so much slower than its answer is made loses the rest of it."""
UNREAD_LOGPROBS_MAX = 2**11
"""Tokens of one answer with their log probabilities: 20 alternatives take about 3 KiB."""

Reader = Callable[[RequestOutput], bool]
"""Takes an output, and returns whether it takes another one now."""


class EngineStream:
    """Outputs of one answer of a request. `forget` is called when nothing more will be read.

    While there is a reader, it gets each output in the call that delivers it. No task wakes up for a token: with many
    streams that costs more than all else that is done for the token. What waits is kept as one output.
    """

    def __init__(self, request_id: str, forget: Callable[[EngineStream], None], index: int = 0) -> None:
        self._forget = forget
        self._cached_tokens = 0
        self._last: RequestOutput | None = None
        self._reader: Reader | None = None
        self._read: asyncio.Future[None] | None = None
        """done when the reader takes no more"""
        self._logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        """of answer 0; they are there before the first token of any answer. Their number is bounded where the request is
        admitted"""
        self._told = False
        """an output had them"""
        self.id, self.index = request_id, index
        self.answers: tuple[EngineStream, ...] = (self,)
        """those of all answers of the request, by index"""
        self.closed = False
        """nothing more will be read"""
        self.waiting = array("q")
        """tokens for the next `hand_over`, or for the next reader"""
        self.begun = False
        """a token has arrived"""
        self.began = self.first_token = 0.0
        """of the request's first token, as in its output; 0 before it"""
        self.ended = False
        """the last output has been read"""

    async def next(self) -> RequestOutput:
        """The next output. Outputs that have already arrived are merged into it. Not to be called after a `finish`."""
        outputs: list[RequestOutput] = []

        def take(output: RequestOutput) -> bool:
            outputs.append(output)
            return False

        await self.read(take)
        return outputs[0]

    async def read(self, reader: Reader) -> None:
        """Give the outputs to `reader`, until it returns False. What it raises is raised here. Outputs that have
        already arrived are merged into one."""
        if (self.waiting or self._last is not None) and not reader(self._take()):
            return
        self._reader, self._read = reader, asyncio.get_running_loop().create_future()
        try:
            await self._read
        finally:
            self._reader = None

    def deliver(self, output: RequestOutput) -> None:
        """Add one output, and hand over. An output after the last one is dropped."""
        if self._last is not None:
            return
        self.keep(output)
        if output.began and not self.began:
            self.began, self.first_token = output.began, output.first_token
        self.begun = self.begun or bool(output.tokens)
        self._cached_tokens = max(self._cached_tokens, output.cached_tokens)
        if output.finish is not None:
            self._last = output
        self.hand_over()

    def keep(self, output: RequestOutput) -> None:
        """Add tokens for the next `hand_over`. If they are too many, nobody reads them, and the request ends."""
        self.waiting.extend(output.tokens)
        if output.logprobs:
            self._logprobs += output.logprobs
        if output.prompt_logprobs:
            self.prompt_logprobs += output.prompt_logprobs
        if len(self.waiting) > UNREAD_TOKENS_MAX or len(self._logprobs) > UNREAD_LOGPROBS_MAX:
            self._cut()

    def hand_over(self) -> None:
        """Give the reader what waits. Without a reader it goes on waiting."""
        if self._reader is None or not (self.waiting or self._last is not None):
            return
        try:
            if not self._reader(self._take()):
                self._end_reading(None)
        except Exception as error:  # any: it ends this stream's reader, and no other
            self._end_reading(error)

    def _take(self) -> RequestOutput:
        """All that waits, as one output."""
        tokens, logprobs, last = tuple(self.waiting), tuple(self._logprobs), self._last
        told = () if self._told else tuple(self.prompt_logprobs)
        self._told = True
        del self.waiting[:]
        self._logprobs.clear()
        if last is None:
            return RequestOutput(
                self.id,
                tokens,
                None,
                self._cached_tokens,
                logprobs=logprobs,
                index=self.index,
                prompt_logprobs=told,
            )
        self.ended = True
        return RequestOutput(
            self.id, tokens, last.finish, self._cached_tokens, last.detail, last.retry_after, logprobs, self.index, told
        )  # fmt: skip

    def _cut(self) -> None:
        if self._reader is None and self._last is None:
            detail = f"The caller left {len(self.waiting)} tokens of its answer unread."
            self._last = RequestOutput(self.id, finish=FinishReason.FAILED, detail=detail, index=self.index)
            self.close()

    def _end_reading(self, error: Exception | None) -> None:
        self._reader = None
        if self._read is None or self._read.done():  # its task was cancelled
            return
        if error is None:
            self._read.set_result(None)
        else:
            self._read.set_exception(error)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._forget(self)


class VectorStream(EngineStream):
    """The vectors of a request, and then its one end. `next` waits for the end."""

    def __init__(self, request_id: str, inputs: int, forget: Callable[[EngineStream], None]) -> None:
        super().__init__(request_id, forget)
        self.vectors: list[bytes] = [b""] * inputs

    def take(self, vector: Vector) -> None:
        self.vectors[vector.index] = vector.values


def streams_of(request_id: str, answers: int, forget: Callable[[EngineStream], None]) -> EngineStream:
    """The stream of a request's first answer; its `answers` are those of all."""
    streams = tuple(EngineStream(request_id, forget, index) for index in range(answers))
    for stream in streams:
        stream.answers = streams
    return streams[0]
