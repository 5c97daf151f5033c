from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence

import tests.bench.engine as package
from llmendpoint_server.engine.machine import spin_briefly

spin_briefly()  # as the engine process does; before torch is imported

import torch  # noqa: E402

from llmendpoint_server.engine.loading import choose_device, choose_dtype  # noqa: E402
from llmendpoint_server.resources import usable_threads  # noqa: E402
from tests.bench.engine import contenders, limits, tables  # noqa: E402
from tests.bench.engine.arguments import numbers, one_of  # noqa: E402
from tests.bench.engine.environments import CannotRun  # noqa: E402
from tests.bench.engine.rounds import Field, Prompter, measure  # noqa: E402
from tests.bench.engine.shapes import FIRST_TOKEN, SHAPES, Shape, decoding  # noqa: E402
from tests.bench.report import machine  # noqa: E402
from tests.bench.results import Result, write  # noqa: E402

FILES = {"llama": "engine", "qwen3": "engine-qwen3"}
EXAMPLE = """\
example, about a minute once the environments are there:
  python -m tests.bench.engine --only llama --peers openvino,llama.cpp --concurrency 1,8 --rounds 1

The peers' environments and models lie in build/peers/, or in the folder that BENCH_PEERS names; the first run makes
them. What the contenders print is in build/bench/logs/.
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.engine",
        description=package.__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    peers = tuple(peer.name for peer in contenders.PEERS)
    add = parser.add_argument
    add("--only", type=one_of(tuple(SHAPES)), default=tuple(SHAPES), metavar="TABLES",
        help=f"which tables: {','.join(SHAPES)} (default both)")  # fmt: skip
    add(
        "--peers",
        type=one_of(peers),
        default=peers,
        help=f"which peers: {','.join(peers)} (default all; --peers= for none)",
    )
    add("--concurrency", type=numbers, default=(1, 8, 16, 64), help="requests at once (default 1,8,16,64)")
    add("--rounds", type=int, default=5, help="measured rounds; a median needs at least 3 (default 5)")
    add("--dtype", choices=("auto", "bfloat16", "float32"), default="auto",
        help="of all contenders at full precision (default auto: what the machine runs best)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}; it must be at least 1")
    return arguments


def say(text: str) -> None:
    print(f"  {text}", flush=True)


@contextlib.contextmanager
def started(
    chosen: Sequence[contenders.Contender], shape: Shape, dtype: str, threads: int, batch: int
) -> Iterator[Field]:
    """The contenders that run. This project's own forms must, or the error is raised."""
    found = Field()
    try:
        for contender in chosen:
            began = time.monotonic()
            try:
                process = contenders.start(contender, shape, dtype, threads, batch, say)
            except CannotRun as error:
                if contender.name == contenders.OURS.name:
                    raise
                say(f"{contender.name} does not run: {error}")
                found.absent[contender.name] = str(error)
            else:
                found.add(contender.name, process)
                say(f"{process.title}: ready after {time.monotonic() - began:.0f} s")
        yield found
    finally:
        found.close()


def table(shape: Shape, arguments: argparse.Namespace, dtype: torch.dtype) -> list[Result]:
    threads = torch.get_num_threads()
    name = str(dtype).removeprefix("torch.")
    print(f"{shape.title}, saved in bf16; {shape.drawing}; {name}, {threads} threads", flush=True)
    before = limits.measure(shape, dtype)
    peers = tuple(peer for peer in contenders.PEERS if peer.name in arguments.peers)
    works = [*(decoding(count) for count in arguments.concurrency), FIRST_TOKEN]
    batch = max(arguments.concurrency)
    with started((*contenders.ours(arguments.dtype), *peers), shape, name, threads, batch) as running:
        prompter = Prompter(shape.vocab)
        found = {
            work: measure(running, shape, work, arguments.rounds, prompter, contenders.OURS.name, say)
            for work in works
        }
    most = before.best(limits.measure(shape, dtype))
    say(f"reads {most.bandwidth / 1e9:.1f} GB/s, multiplies {most.flops / 1e9:.0f} GFLOPS")
    return [
        row
        for work, seconds in found.items()
        for row in tables.rows(work, seconds, running, peers, shape, most)
    ]


def main() -> None:
    arguments = parse()
    torch.set_num_threads(usable_threads())
    dtype = choose_dtype(arguments.dtype, choose_device("cpu"), None)
    print(machine(), flush=True)
    for name in arguments.only:
        write(FILES[name], table(SHAPES[name], arguments, dtype))


if __name__ == "__main__":
    main()
