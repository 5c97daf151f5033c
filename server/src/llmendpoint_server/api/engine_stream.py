"""The outputs of one request, from the engine's side of the API process to the answer's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from llmendpoint_server.core.request import RequestOutput, TokenLogprobs

Reader = Callable[[RequestOutput], bool]
"""Takes an output, and returns whether it takes another one now."""


def merged(outputs: Sequence[RequestOutput]) -> RequestOutput:
    """Outputs of one request, in their order, as one."""
    if len(outputs) == 1:
        return outputs[0]
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] = []
    cached = 0
    for output in outputs:
        tokens += output.tokens
        logprobs += output.logprobs
        cached = max(cached, output.cached_tokens)
    last = outputs[-1]
    return RequestOutput(
        last.id, tuple(tokens), last.finish, cached, last.detail, last.retry_after, tuple(logprobs)
    )


class EngineStream:
    """Outputs of one request. `forget` is called when nothing more will be read.

    While there is a reader, it gets each output in the call that delivers it. No task wakes up for a token: with many
    streams that costs more than all else that is done for the token.
    """

    def __init__(self, request_id: str, forget: Callable[[str], None]) -> None:
        self._forget = forget
        self._unread: list[RequestOutput] = []
        self._last_arrived = False
        self._reader: Reader | None = None
        self._read: asyncio.Future[None] | None = None
        """done when the reader takes no more"""
        self.id = request_id
        self.begun = False
        """a token has arrived"""
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
        if self._unread:
            output, self._unread = merged(self._unread), []
            self.ended = self._last_arrived
            if not reader(output):
                return
        self._reader, self._read = reader, asyncio.get_running_loop().create_future()
        try:
            await self._read
        finally:
            self._reader = None

    def deliver(self, output: RequestOutput) -> None:
        """Adds one output. An output after the last one is dropped."""
        if self._last_arrived:
            return
        self.begun = self.begun or bool(output.tokens)
        self._last_arrived = output.finish is not None
        if self._reader is None:
            self._unread.append(output)
            return
        self.ended = self._last_arrived
        try:
            if not self._reader(output):
                self._end_reading(None)
        except Exception as error:  # any: it ends this stream's reader, and no other
            self._end_reading(error)

    def _end_reading(self, error: Exception | None) -> None:
        self._reader = None
        if self._read is None or self._read.done():  # its task was cancelled
            return
        if error is None:
            self._read.set_result(None)
        else:
            self._read.set_exception(error)

    def close(self) -> None:
        self._forget(self.id)
