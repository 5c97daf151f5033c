"""A small process that compiles the grammars of callers before the engine sees them: `python -m llmendpoint_server.api.grammar_checker`.

A grammar may take any time and memory to compile, or end the process that does it. So that is not the API process, nor the engine: each
grammar has a fork of this one, which has a limit of memory, and is ended when it takes too long. A fork has the tokenizer already.

Frames of JSON on stdin and stdout. First the parent sends [folder, size of the vocabulary, end tokens], then one [Grammar, seconds] after
another; each is answered with a Verdict.
"""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec
from llguidance import LLTokenizer

from llmendpoint_server import guidance
from llmendpoint_server.api.frames import LENGTH_BYTES, Verdict, frame, length
from llmendpoint_server.core.grammar import Grammar

MEMORY_BYTES = 2**30
"""Of addresses, beyond what the model's tokenizer takes."""


def read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH_BYTES)
    return stream.read(length(head)) if len(head) == LENGTH_BYTES else None


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    source, out = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(source)
    if first is None:
        return 0
    folder, vocab_size, ends = msgspec.json.decode(first, type=tuple[str, int, list[int]])
    tokenizer, why = None, ""
    try:
        tokenizer = guidance.make_tokenizer(Path(folder), vocab_size, ends)
    except guidance.BadGrammar as error:
        why = str(error)
    limit_memory()
    while (body := read_frame(source)) is not None:
        grammar, seconds = msgspec.json.decode(body, type=tuple[Grammar, float])
        verdict: Verdict = ("bad", why) if tokenizer is None else checked(tokenizer, grammar, seconds)
        out.write(frame(msgspec.json.encode(verdict)))
        out.flush()
    return 0


def checked(tokenizer: LLTokenizer, grammar: Grammar, seconds: float) -> Verdict:
    """In a fork. This process has one thread, so that a fork is whole."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _check(tokenizer, grammar, seconds, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        in_time = bool(select.select([told], [], [], seconds)[0])
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        text = told.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if not in_time:
        return "slow", ""
    return ("ended", "") if status else ("bad" if text else "good", text)


def _check(tokenizer: LLTokenizer, grammar: Grammar, seconds: float, writing: int) -> NoReturn:
    """Says why the grammar cannot be used, or nothing. If nobody ends it, because the process that waits was killed, its limit of processor
    time does."""
    try:
        most = math.ceil(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        try:
            guidance.check(tokenizer, grammar)
        except guidance.BadGrammar as error:
            os.write(writing, str(error).encode("utf-8", "replace"))
        os._exit(0)
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
