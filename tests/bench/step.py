"""What Python does for a step of sequences that decode, while a GPU would wait: `make bench-step`.

The real scheduler, step, inputs, runner, loop and messages, on CPU tensors, with a model and CUDA graphs that compute nothing. Greedy, no log
probabilities, no grammar, no speculation. The time is the thread's own of its processor, so that a busy neighbour does not count;
medians of steps. What is launched on a device, and the copies to it, come on top. The engine launches each step before it reads the tokens of
the one before, so that a device that needs longer than this never waits.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch

from llmendpoint_server import protocol
from llmendpoint_server.core.batch import Batch
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import PAGE_SIZE, LayerCache, PagedCache
from llmendpoint_server.engine.connection import Connection
from llmendpoint_server.engine.graphs import Work
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.loop import Engine
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.engine.step import Step
from tests.bench.results import Result, write

ROWS = (1, 64, 256)
LONGEST = 4096
PROMPT = 100
CPU = torch.device("cpu")
GOAL, GOAL_A_ROW = "<= 1500 us", "<= 6 us"
"""Of a step of the most rows, and of each of its rows."""
SCHEDULE, PREPARE, RUN, UPDATE, SEND, WHOLE = (
    "scheduler: what the step takes",
    "runner: the step's tensors",
    "runner: the rest",
    "scheduler: what it gave",
    "load and outputs to the API process",
    "a step",
)


class Pages(Backend):
    captures = True

    def __init__(self, pages: int) -> None:
        self.cache = PagedCache(pages, PAGE_SIZE)
        self._inputs = Inputs(PAGE_SIZE, CPU)

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // PAGE_SIZE))

    def prepare(self, batch: Batch, padding: Any = ()) -> Step:
        return Step(batch, self._inputs, CPU, torch.float32, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        raise NotImplementedError("the model has no attention")


class Model:
    """Its most probable token is always 0."""

    attending = SimpleNamespace()

    def __call__(self, logits_to_keep: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=torch.zeros(1, len(logits_to_keep), 2))


class NoWork:
    """A replay does nothing: what the graph gave at its recording stays."""

    def rehearse(self, work: Work) -> None:
        work()

    def record(self, work: Work) -> Work:
        work()
        return lambda: None


class Clock:
    """Sums the time of each part of a step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args, **options)
            finally:
                self.spent[part] += time.thread_time() - began

        return measured


def make_engine(rows: int, longest: int = LONGEST) -> Engine:
    """An engine in which `rows` sequences decode."""
    pages = rows * -(-longest // PAGE_SIZE)
    backend = Pages(pages + 1)
    runner = ModelRunner(cast(Any, Model()), backend)
    runner.capture(NoWork(), rows, 8192, longest)
    config = SchedulerConfig(longest, rows, 2 * rows, 8192, 2, frozenset({1}), prefix_key=b"key")
    engine = Engine(runner, Scheduler(config, BlockManager(pages, PAGE_SIZE)), launcher=runner)
    for n in range(rows):
        prompt = tuple((n + place) % 2 for place in range(PROMPT + 7 * n % 400))
        sampling = SamplingParams(longest - len(prompt), temperature=0)
        engine.add(Request(f"chatcmpl-{n:032x}", prompt, sampling))
    for _ in range(rows + 1):
        engine.step()
        if sum(one.decoding for one in running(engine)) == rows:
            return engine
    raise RuntimeError("not all sequences decode")


def running(engine: Engine) -> list[Any]:
    return engine.scheduler._members.running


def watch(engine: Engine, clock: Clock) -> None:
    scheduler, runner = cast(Any, engine.scheduler), cast(Any, engine.runner)
    scheduler.ahead = clock.timed(SCHEDULE, scheduler.ahead)
    scheduler.update = clock.timed(UPDATE, scheduler.update)
    runner.backend.prepare = clock.timed(PREPARE, runner.backend.prepare)
    runner.launch = clock.timed(RUN, runner.launch)
    runner.result = clock.timed(RUN, runner.result)


def stepping(
    engine: Engine, connection: Connection, reader: socket.socket, send: Callable[..., None]
) -> None:
    """One turn of the loop of `engine/process.py`."""
    list(connection.receive(0))
    outputs = engine.step()
    send(connection, engine, outputs)
    reader.recv(2**20)


def send(connection: Connection, engine: Engine, outputs: list[protocol.RequestOutput]) -> None:
    connection.send(protocol.StepOutput(tuple(outputs)), engine.stats())


def measure(rows: int, steps: int, profile: cProfile.Profile | None = None) -> dict[str, float]:
    """Microseconds a step, by part."""
    engine, clock = make_engine(rows), Clock()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    connection = Connection(ours)
    if profile is None:
        watch(engine, clock)
    step = clock.timed(WHOLE, stepping)
    sending = send if profile is not None else clock.timed(SEND, send)
    taken: dict[str, list[float]] = defaultdict(list)
    gc.collect()
    gc.freeze()
    for n in range(steps + 10):
        clock.spent.clear()
        if n == 10 and profile is not None:
            profile.enable()
        step(engine, connection, theirs, sending)
        clock.spent[RUN] -= clock.spent[PREPARE]
        if n >= 10:
            for part, seconds in clock.spent.items():
                taken[part].append(seconds * 1e6)
    if profile is not None:
        profile.disable()
    assert len(running(engine)) == rows
    ours.close()
    theirs.close()
    return {part: statistics.median(values) for part, values in taken.items()}


def results_of(rows: int, parts: dict[str, float]) -> list[Result]:
    whole, most = parts[WHOLE], rows == ROWS[-1]
    label = f"{rows} row{'s' if rows > 1 else ''}"
    found = [
        Result(f"{label}: {part}", parts[part], "us", WHOLE, parts[part] / whole)
        for part in (SCHEDULE, PREPARE, RUN, UPDATE, SEND)
    ]
    found.append(Result(f"{label}: {WHOLE}", whole, "us", goal=GOAL if most else ""))
    if rows > 1:
        found.append(Result(f"{label}: a row of a step", whole / rows, "us", goal=GOAL_A_ROW if most else ""))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--profile", type=int, metavar="ROWS", help="print where a step of ROWS rows spends its time"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.profile:
        profile = cProfile.Profile()
        measure(asked.profile, asked.steps, profile)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return
    results = []
    for rows in ROWS:
        results += results_of(rows, measure(rows, asked.steps))
    write("step", results)


if __name__ == "__main__":
    main()
