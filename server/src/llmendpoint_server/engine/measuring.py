"""Times a few steps of a loaded model, so that core/batch_limits.py can say how many sequences and tokens a step computes.

The steps work on a few pages that all their sequences share: the results are garbage, and only their times count. A time is the
processor's, divided by the processors that the process may use: what a step takes where no neighbour has the cores. Pods that
start side by side on a node would otherwise find their machine slow, and keep its limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Protocol

import torch

from llmendpoint_server.core.batch import Batch, Sampled, Scheduled
from llmendpoint_server.core.batch_limits import SEQUENCES, Measured
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.resources import CGROUP, cpu_quota

PAGES = 16
CONTEXT = 64
"""Tokens of a sequence that decodes."""
PROMPTS = (32, 128)
"""Tokens of the prompts."""
RUNS = 3
DECODE_SECONDS, PROMPT_SECONDS = 0.6, 0.4
"""The most that measuring takes of the processor. Only two steps of the fewest sequences are computed even if they take longer."""
MOST_SECONDS = 2.0
"""After so long by the clock no larger size is begun."""


class Runner(Protocol):
    def run(self, batch: Batch) -> list[Sampled]: ...


@dataclass(frozen=True, slots=True)
class StepTimes:
    """By size, ascending. `decodes` has at least the first of SEQUENCES. `prompts` is empty if the time did not suffice."""

    decodes: tuple[Measured, ...]
    prompts: tuple[Measured, ...]


def busy_clock(root: Path = CGROUP) -> Callable[[], float]:
    """The seconds that this process has had of its processors: one for each thread, or what its cgroup grants if that is less."""
    threads = torch.get_num_threads()
    processors = min(threads, cpu_quota(root) or threads)
    return lambda: time.process_time() / processors


def measure(
    runner: Runner,
    vocab_size: int,
    longest: int,
    clock: Callable[[], float] | None = None,
    wall: Callable[[], float] = time.monotonic,
) -> StepTimes:
    """Time steps on the first PAGES pages of `runner`. `longest`: the most tokens of a sequence."""
    clock = clock or busy_clock()
    wall_end = wall() + MOST_SECONDS

    def in_time(batches: Iterable[tuple[int, Batch]]) -> Iterator[tuple[int, Batch]]:
        return takewhile(lambda _: wall() < wall_end, batches)

    def row(number: int, length: int, count: int) -> Scheduled:
        """The last `count` tokens of a sequence. Its tokens are spread over the vocabulary, and with them over experts."""
        tokens = [7919 * (17 * number + place + 1) % vocab_size for place in range(length)]
        needs = -(-length // PAGE_SIZE)
        table = [(number * needs + page) % PAGES for page in range(needs)]
        request = Request("measured", tuple(tokens), SamplingParams(1, temperature=0))
        return Scheduled(Sequence(request, 0, tokens, [], table=table), length - count, count)

    context = min(CONTEXT, longest)
    decodes = ((n, Batch(tuple(row(i, context, 1) for i in range(n)), 0.0)) for n in SEQUENCES)
    measured = tuple(_timed(runner, in_time(decodes), clock, DECODE_SECONDS, None))
    last = measured[-1]
    prompts = ((n, Batch((row(0, n, n),), 0.0)) for n in PROMPTS if n <= longest)
    return StepTimes(
        measured, tuple(_timed(runner, in_time(prompts), clock, PROMPT_SECONDS, last.seconds / last.size))
    )


def _timed(
    runner: Runner,
    batches: Iterable[tuple[int, Batch]],
    clock: Callable[[], float],
    limit: float,
    per_row: float | None,
) -> Iterator[Measured]:
    """Run each batch once for first-time work, and then RUNS times, as long as all this takes no more than `limit` seconds. A
    size for which the time does not suffice is left out, because one pause of the machine would decide it. `per_row`: the most
    seconds that a row of the first batch takes; None: it is measured in any case. A row of a larger batch takes no more."""
    end = clock() + limit
    for size, batch in batches:
        most = inf if per_row is None else per_row * size
        if most < inf and clock() + most > end:
            return
        once = min(most, _seconds(runner, batch, clock))
        if per_row is None and clock() + RUNS * once > end:
            once = min(once, _seconds(runner, batch, clock))
        fits = clock() + RUNS * once <= end
        if per_row is not None and not fits:
            return
        runs = [_seconds(runner, batch, clock) for _ in range(RUNS if fits else 0)]
        measured = Measured(size, tuple(runs or [once]))
        per_row = measured.seconds / size
        yield measured


def _seconds(runner: Runner, batch: Batch, clock: Callable[[], float]) -> float:
    began = clock()
    runner.run(batch)
    return clock() - began
