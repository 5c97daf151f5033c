"""A small process that compiles the grammars of callers before the engine sees them: `python -m llmendpoint_server.api.grammar_checker`.

A grammar may take any time and memory to compile, or end the process that does it. So that is not the API process, nor the engine: this one
has a limit of memory, and its parent ends it when it takes too long.

Frames of JSON on stdin and stdout. First the parent sends [folder, size of the vocabulary, end tokens],
then one Grammar after another; each is answered with a text: empty, or why the grammar cannot be used.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from llmendpoint_server import guidance
from llmendpoint_server.api.frames import LENGTH_BYTES, frame, length
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
        answer = why
        if tokenizer is not None:
            try:
                guidance.check(tokenizer, msgspec.json.decode(body, type=Grammar))
            except guidance.BadGrammar as error:
                answer = str(error)
        out.write(frame(answer.encode("utf-8", "replace")))
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
