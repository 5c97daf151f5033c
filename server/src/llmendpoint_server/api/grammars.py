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
from llmendpoint_server.api.frames import LENGTH_BYTES, Verdict, frame, length
from llmendpoint_server.core.grammar import NAMES, Grammar
from llmendpoint_server.errors import InvalidRequest, QueueFull
from llmendpoint_server.protocol import Loaded

START_SECONDS = 30.0
"""Until the process has read the model's tokenizer: some ms, and a second for a vocabulary of 150k."""
QUICK_SECONDS = 0.15
"""For the first try. Usual grammars take some ms, an enum of 6,000 values 60."""
GUARD_SECONDS = 1.0
"""After which a process that says nothing is ended. It ends by itself what takes too long."""
WAITING_MAX = 64
SLOW_MAX = 16
"""Of those that wait, the ones that were not ready at the first try."""
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


class Helper:
    """One process that compiles grammars, one at a time. It starts with the first one, and anew after it was ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, grammar: Grammar, seconds: float, loaded: Loaded) -> Verdict:
        async with self._turn:
            return await self._ask(grammar, seconds, loaded)

    async def _ask(self, grammar: Grammar, seconds: float, loaded: Loaded) -> Verdict:
        """Only the end of a new process is the grammar's doing: an old one may have been killed meanwhile."""
        new = self._process is None
        process = self._process or await self._start(loaded)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(frame(msgspec.json.encode((grammar, seconds))))
            async with asyncio.timeout(seconds + GUARD_SECONDS):
                head = await process.stdout.readexactly(LENGTH_BYTES)
                answer = await process.stdout.readexactly(length(head))
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                return "slow", ""
            if isinstance(error, asyncio.IncompleteReadError | OSError | RuntimeError):  # the last: uvloop's
                return ("ended", "") if new else await self._ask(grammar, seconds, loaded)
            raise  # the caller is gone, and what the process would say belongs to nobody
        verdict: Verdict = msgspec.json.decode(answer, type=Verdict)
        return verdict

    async def _start(self, loaded: Loaded) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llmendpoint_server.api.grammar_checker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        about = str(self._folder), loaded.vocab_size, loaded.eos_token_ids
        anything = Grammar("regex", "a"), limits.GRAMMAR_SECONDS_MAX
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


class Grammars:
    """`folder`: of the model; None: the simulator, which follows no grammar. What is known of the last grammars is kept.

    Each grammar is tried for a moment. One that is not ready then goes to a second process, which takes its time: so those who send such
    wait for one another, and the usual ones only for moments of them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._helpers = (Helper(folder), Helper(folder)) if folder is not None else None
        self._known: OrderedDict[Grammar, tuple[str, float]] = OrderedDict()
        """why not (empty: it can be used), and until when that is known (monotonic seconds)"""
        self._waiting = self._slow = 0

    async def check(self, asked: Asked, loaded: Loaded) -> None:
        """Raises InvalidRequest if the grammar cannot be used, QueueFull if too many wait to be checked."""
        grammar = asked.grammar
        why = self._verdict(grammar)
        if why is None:
            if self._helpers is None:
                raise InvalidRequest(
                    f"{asked.field} is not supported by the simulator: leave it out.", param=asked.field
                )
            _bound(self._waiting, WAITING_MAX)
            self._waiting += 1
            try:
                why = await self._ask(grammar, loaded, *self._helpers)
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

    async def _ask(self, grammar: Grammar, loaded: Loaded, quick: Helper, slow: Helper) -> str:
        kind, text = await quick.ask(grammar, QUICK_SECONDS, loaded)
        if kind == "slow":
            _bound(self._slow, SLOW_MAX)
            self._slow += 1
            try:
                kind, text = await slow.ask(grammar, limits.GRAMMAR_SECONDS_MAX, loaded)
            finally:
                self._slow -= 1
        return {"slow": TOO_SLOW, "ended": TOO_LARGE}.get(kind, text)

    def close(self) -> None:
        for helper in self._helpers or ():
            helper.close()


def _bound(waiting: int, most: int) -> None:
    if waiting >= most:
        raise QueueFull(
            f"{waiting} grammars wait to be checked already. Try again after the seconds in Retry-After.",
            retry_after=1.0,
        )
