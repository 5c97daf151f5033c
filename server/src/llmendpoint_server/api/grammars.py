"""Says whether a caller's grammar can be used, in bounded time and off the event loop: `grammar_checker` compiles it in its own process."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmendpoint_server import limits
from llmendpoint_server.api.frames import LENGTH_BYTES, frame, length
from llmendpoint_server.core.grammar import NAMES, Grammar
from llmendpoint_server.errors import InvalidRequest, QueueFull
from llmendpoint_server.protocol import Loaded

START_SECONDS = 30.0
"""Until the process has read the model's tokenizer: some ms, and a second for a vocabulary of 150k."""
WAITING_MAX = 64
REMEMBERED = 256
TOO_SLOW = (
    f"it did not compile within {limits.GRAMMAR_SECONDS_MAX:g} s. Make it smaller: fewer alternatives, lower bounds of lengths and "
    "counts."
)
TOO_LARGE = "it takes too much memory, or cannot be compiled at all. Make it smaller."
PASSING_SECONDS = 60.0
"""How long these two are remembered: a busy machine may be the cause."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A grammar, and the field of the body that it is from."""

    grammar: Grammar
    field: str


class Grammars:
    """`folder`: of the model; None: the simulator, which follows no grammar. The process starts with the first grammar, and anew after it
    was ended. Grammars are checked one at a time; what is known of the last ones is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._known: OrderedDict[Grammar, tuple[str, float]] = OrderedDict()
        """why not (empty: it can be used), and until when that is known (monotonic seconds)"""
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def check(self, asked: Asked, loaded: Loaded) -> None:
        """Raises InvalidRequest if the grammar cannot be used, QueueFull if too many wait to be checked."""
        grammar = asked.grammar
        why = self._verdict(grammar)
        if why is None:
            if self._folder is None:
                raise InvalidRequest(
                    f"{asked.field} is not supported by the simulator: leave it out.", param=asked.field
                )
            if self._waiting >= WAITING_MAX:
                raise QueueFull(
                    f"{self._waiting} grammars wait to be checked already. Try again after the seconds in Retry-After.",
                    retry_after=1.0,
                )
            self._waiting += 1
            try:
                async with self._turn:
                    why = self._verdict(grammar)
                    if why is None:
                        why = await self._ask(grammar, loaded, self._folder)
            finally:
                self._waiting -= 1
            self._remember(grammar, why)
        if why:
            raise InvalidRequest(
                f"{NAMES[grammar.kind]} in {asked.field} cannot be used: {why}", param=asked.field
            )

    def _verdict(self, grammar: Grammar) -> str | None:
        why, until = self._known.get(grammar, ("", 0.0))
        return why if time.monotonic() < until else None

    def _remember(self, grammar: Grammar, why: str) -> None:
        if self._verdict(grammar) is None:
            until = time.monotonic() + PASSING_SECONDS if why in (TOO_SLOW, TOO_LARGE) else math.inf
            self._known[grammar] = why, until
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _ask(self, grammar: Grammar, loaded: Loaded, folder: Path) -> str:
        """Only the end of a new process is the grammar's doing: an old one may have been killed meanwhile."""
        new = self._process is None
        process = self._process or await self._start(loaded, folder)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(frame(msgspec.json.encode(grammar)))
            async with asyncio.timeout(limits.GRAMMAR_SECONDS_MAX):
                head = await process.stdout.readexactly(LENGTH_BYTES)
                answer = await process.stdout.readexactly(length(head))
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                return TOO_SLOW
            if isinstance(error, asyncio.IncompleteReadError | OSError | RuntimeError):  # the last: uvloop's
                return TOO_LARGE if new else await self._ask(grammar, loaded, folder)
            raise  # the caller is gone, and what the process would say belongs to nobody
        return answer.decode()

    async def _start(self, loaded: Loaded, folder: Path) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llmendpoint_server.api.grammar_checker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        about = str(folder), loaded.vocab_size, loaded.eos_token_ids
        anything = Grammar("regex", "a")
        process.stdin.write(frame(msgspec.json.encode(about)) + frame(msgspec.json.encode(anything)))
        try:
            async with asyncio.timeout(START_SECONDS):
                head = await process.stdout.readexactly(LENGTH_BYTES)
                await process.stdout.readexactly(length(head))
        except BaseException:
            self.close()
            raise
        return process

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
