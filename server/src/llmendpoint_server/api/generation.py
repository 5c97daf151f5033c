"""All answers to one body, from the engine's first outputs to their last pieces; the same for chat and text, streamed or
not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from llmendpoint_server.api.answer import Account, Answer
from llmendpoint_server.api.pieces import Piece, Show, Whole
from llmendpoint_server.api.record import together


async def at_once() -> None:
    """For a reader that always keeps up."""


class Generation:
    """Runs the answers of one body. An error in one fails all. `begin` waits for the first token, so that a refusal still
    has its own HTTP status."""

    def __init__(self, answers: Sequence[Answer], account: Account) -> None:
        self.answers, self._account = answers, account
        self._tasks: list[asyncio.Task[None]] = []
        self._failed = False
        self.usage = account.usage

    async def begin(self) -> None:
        """Wait for the first output of any answer. Raises QueueFull, DeadlineExceeded, Unavailable or EngineFailed; nothing
        has been sent to the caller then."""
        if len(self.answers) == 1:
            await self.answers[0].begin()
            return
        self._tasks = [asyncio.create_task(answer.begin()) for answer in self.answers]
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()

    async def read(self, show: Show, keep_up: Callable[[], Awaitable[None]] = at_once) -> None:
        """To be called after `begin`. Give all answers to `show` as they become certain. When it takes no more for now, wait for `keep_up`. Raises
        EngineFailed in the middle if the engine fails."""
        if len(self.answers) == 1:
            await self.answers[0].read(show, keep_up)
            return

        async def read_one(answer: Answer, beginning: asyncio.Task[None]) -> None:
            await beginning
            await answer.read(show, keep_up)

        reading = [
            asyncio.create_task(read_one(answer, beginning))
            for answer, beginning in zip(self.answers, self._tasks, strict=True)
        ]
        self._tasks += reading
        try:
            await asyncio.gather(*reading)
        finally:  # after an error nothing more may be shown
            _cancel(reading)

    def mark_failed(self) -> None:
        self._failed = True
        self._account.record.finish = "error"

    def close(self) -> None:
        """Free everything in the engine. Must be called when nothing more will be read, however it ended."""
        _cancel(self._tasks)
        for answer in self.answers:
            answer.close()
        record, usage = self._account.record, self.usage
        record.output_tokens, record.cached_tokens = usage.completion_tokens, usage.cached_tokens
        record.times = together([one.times for one in self.answers if one.times is not None])
        if not self._failed and not all(answer.ended for answer in self.answers):
            record.finish = "abort"
            self._account.metrics.count_finished("abort")


def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as unseen


async def collect(generation: Generation) -> list[Whole]:
    """The whole answers, by index."""
    answers = [Whole(index) for index in range(len(generation.answers))]

    def show(piece: Piece) -> bool:
        answers[piece.index].add(piece)
        return True

    await generation.read(show)
    for whole, answer in zip(answers, generation.answers, strict=True):
        whole.prompt_scores = answer.prompt_scores
    return answers
