"""A contender's side of the pipe: one JSON object a line. Python's own library alone, for any environment.

The first argument is a JSON object of `Options`. Then a line comes in for each round, `{"prompts": [[token, …], …],
"max_tokens": n, "temperature": t, "top_p": p}`, and a line goes out, `{"first": [token, …], "made": n, "seconds": s}`.
The first line out is `{"ready": "name, version, form"}`. `{"error": "…"}` may stand in place of any of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """`model`: where the model lies, in this contender's own form. `weights`: int8, or empty for full precision."""

    model: str
    dtype: str
    threads: int
    batch: int
    form: str = ""
    weights: str = ""


@dataclass(frozen=True)
class Sampling:
    """`temperature` 0 is greedy. Exactly `max_tokens` are made: no token ends an answer."""

    max_tokens: int
    temperature: float
    top_p: float

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


Prompts = list[list[int]]
Answering = Callable[[Prompts, Sampling], Prompts]
"""Answers the prompts, all at once: the tokens of each."""


def serve(load: Callable[[Options], tuple[str, Answering]]) -> None:
    """Load, then answer until standard input ends. What a library prints goes to standard error."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def send(**message: Any) -> None:
        pipe.write(json.dumps(message) + "\n")

    try:
        name, answering = load(Options(**json.loads(sys.argv[1])))
    except Exception as error:
        send(error=sentence(error))
        raise
    send(ready=name)
    for line in sys.stdin:
        message = json.loads(line)
        prompts = message.pop("prompts")
        try:
            start = time.perf_counter()
            answers = answering(prompts, Sampling(**message))
            seconds = time.perf_counter() - start
        except Exception as error:
            send(error=sentence(error))
            raise
        send(first=[answer[0] for answer in answers], made=sum(map(len, answers)), seconds=seconds)


def sentence(error: Exception) -> str:
    """The error in one line of readable length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
