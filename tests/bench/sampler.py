"""The time to choose the tokens of a batch, beside that of greedy: `make bench-sampler`.

152k logits a row, one thread; in torch, and with the CPU kernel if this machine has it, which give the same tokens. `text` has logits as
a language model gives them: 60 tokens of each row stand out. `normal` and `normal x 3` are random, so that thousands of tokens are
within top_p. All ways of both run in turn, greedy among them; the figures are medians, the ratios medians of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import native
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling.sampler import Sampler
from tests.bench.results import Result, write

VOCABULARY = 151_936
GREEDY, TOP_P = "greedy", "top_p 0.95"
TORCH, KERNEL = "torch", "kernel"
WAYS = {
    GREEDY: SamplingParams(8, temperature=0),
    "temperature": SamplingParams(8, temperature=0.7),
    TOP_P: SamplingParams(8, top_p=0.95),
    "top_k 50": SamplingParams(8, top_k=50),
    "top_p 0.95, top_k 50": SamplingParams(8, top_p=0.95, top_k=50),
}
GOAL = "ratio <= 2"
"""For top_p beside greedy."""


def text_logits(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(rows, VOCABULARY, generator=generator) * 2.5
    for row in logits:
        row[torch.randperm(VOCABULARY, generator=generator)[:60]] += torch.linspace(24, 8, 60)
    return logits


def normal_logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(1))


BATCHES: tuple[tuple[str, int, torch.dtype, Callable[[int], torch.Tensor]], ...] = (
    ("text", 1, torch.float32, text_logits),
    ("text", 16, torch.float32, text_logits),
    ("text", 16, torch.bfloat16, text_logits),
    ("text", 64, torch.float32, text_logits),
    ("normal", 16, torch.float32, normal_logits),
    ("normal x 3", 16, torch.float32, lambda rows: normal_logits(rows) * 3),
)


def ways_of(logits: torch.Tensor, kernels: Kernels | None) -> dict[str, Callable[[], object]]:
    """By implementation and way."""

    def way(sample: Sampler, params: SamplingParams) -> Callable[[], object]:
        sequences = [Sequence(Request("r", (0,), params), i, [0] * (i + 1), []) for i in range(len(logits))]
        return lambda: sample(logits, sequences)

    samplers = {KERNEL: Sampler(kernels)} if kernels is not None else {}
    samplers[TORCH] = Sampler()
    return {
        f"{by}, {name}": way(one, params) for by, one in samplers.items() for name, params in WAYS.items()
    }


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of this thread's own processor time: a busy neighbour does not count. A call before it brings the logits into the
    caches: what another way has just used them for would decide else."""
    call()
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1e3


def measure(logits: torch.Tensor, kernels: Kernels | None, turns: int) -> dict[str, list[float]]:
    ways = ways_of(logits, kernels)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, call in ways.items():
            taken[name].append(timed(call))
    return taken


def figures(label: str, taken: dict[str, list[float]]) -> list[Result]:
    """Each way beside greedy by the same implementation, and the kernel's top_p beside torch's greedy too."""

    def result(name: str, against: str, goal: str = "") -> Result:
        ratios = [a / b for a, b in zip(taken[name], taken[against], strict=True)]
        value = statistics.median(taken[name])
        return Result(f"{label}: {name}", value, "ms", against, statistics.median(ratios), goal)

    found = []
    for name in taken:
        by, _, way = name.partition(", ")
        found.append(result(name, f"{by}, {GREEDY}", GOAL if way == TOP_P else ""))
    if f"{KERNEL}, {TOP_P}" in taken:
        found.append(result(f"{KERNEL}, {TOP_P}", f"{TORCH}, {GREEDY}", GOAL))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sampler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    kernels = native.find(torch.device("cpu"), torch.float32)
    results = []
    for kind, rows, dtype, make in BATCHES:
        label = f"{kind}, {rows} x {str(dtype).removeprefix('torch.')}"
        print(f"{label}; load {os.getloadavg()[0]:.1f}", flush=True)
        with torch.inference_mode():
            results += figures(label, measure(make(rows).to(dtype), kernels, turns))
    write("sampler", results)


if __name__ == "__main__":
    main()
