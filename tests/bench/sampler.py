"""The time to choose the tokens of a batch, beside that of greedy: `make bench-sampler`.

152k logits a row, one thread. `text` has logits as a language model gives them: 60 tokens of each row stand out. `normal` and
`normal x 3` are random, so that thousands of tokens are within top_p. All ways run in turn, greedy among them; the figures are
medians, the ratios medians of the ratios within a turn. torch.max is one call of torch, which was this server's greedy before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.sampler import Sampler
from tests.bench.results import Result, write

VOCABULARY = 151_936
GREEDY, TORCH_MAX, TOP_P = "greedy", "torch.max", "top_p 0.95"
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


def ways_of(logits: torch.Tensor) -> dict[str, Callable[[], object]]:
    def way(params: SamplingParams) -> Callable[[], object]:
        sample = Sampler()
        sequences = [Sequence(Request("r", (0,), params), i, [0] * (i + 1), []) for i in range(len(logits))]
        return lambda: sample(logits, sequences)

    return {name: way(params) for name, params in WAYS.items()} | {TORCH_MAX: lambda: logits.max(-1)}


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of this thread's own processor time: a busy neighbour does not count."""
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1e3


def measure(logits: torch.Tensor, turns: int) -> dict[str, list[float]]:
    ways = ways_of(logits)
    for call in ways.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, call in ways.items():
            taken[name].append(timed(call))
    return taken


def figures(label: str, taken: dict[str, list[float]]) -> list[Result]:
    def result(name: str, against: str = "", goal: str = "") -> Result:
        ratios = [a / b for a, b in zip(taken[name], taken[against], strict=True)] if against else []
        value = statistics.median(taken[name])
        return Result(
            f"{label}: {name}", value, "ms", against, statistics.median(ratios) if ratios else None, goal
        )

    others = [result(name, GREEDY, GOAL if name == TOP_P else "") for name in taken if name != GREEDY]
    return [result(GREEDY), *others, result(TOP_P, TORCH_MAX)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sampler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    results = []
    for kind, rows, dtype, make in BATCHES:
        label = f"{kind}, {rows} x {str(dtype).removeprefix('torch.')}"
        print(label, flush=True)
        with torch.inference_mode():
            results += figures(label, measure(make(rows).to(dtype), turns))
    write("sampler", results)


if __name__ == "__main__":
    main()
