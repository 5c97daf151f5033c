from __future__ import annotations

import argparse
import signal
import sys

import tests.bench.serving as package
from llmendpoint_server.engine.machine import cpu_has_bf16
from llmendpoint_server.resources import usable_threads
from tests.bench.engine import models
from tests.bench.engine.arguments import one_of
from tests.bench.engine.environments import CannotRun
from tests.bench.engine.shapes import LLAMA
from tests.bench.results import Result, write
from tests.bench.serving.parts import PARTS, Setting
from tests.bench.serving.servers import STREAMS_MAX

EXAMPLE = """\
example, about a minute:
  python -m tests.bench.serving --only throughput,start --streams 16 --rounds 1

vLLM's environment lies in build/peers/, or in the folder that BENCH_PEERS names; the first run makes it. What the
servers log is in build/bench/logs/.
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.serving",
        description=package.__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=one_of(tuple(PARTS)), default=tuple(PARTS), metavar="PARTS",
        help=f"which parts: {','.join(PARTS)} (default all)")  # fmt: skip
    add("--rounds", type=int, default=3, help="measured rounds; a median needs at least 3 (default 3)")
    add("--streams", type=int, default=STREAMS_MAX, help=f"streams at once (default {STREAMS_MAX})")
    add("--requests", type=int, default=128, help="requests of a round of the part vllm (default 128)")
    arguments = parser.parse_args()
    for name in ("rounds", "streams", "requests"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if arguments.streams > STREAMS_MAX:
        parser.error(f"--streams is {arguments.streams}; the servers run {STREAMS_MAX} at a time")
    return arguments


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def main() -> None:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the servers end too
    setting = Setting(
        model=models.model(LLAMA, models.SAVED, say),
        dtype="bfloat16" if cpu_has_bf16() else "float32",
        threads=usable_threads(),
        rounds=arguments.rounds,
        streams=arguments.streams,
        requests=arguments.requests,
        say=say,
    )
    found: list[Result] = []
    failed = []
    for name in arguments.only:
        print(f"{name}, {setting.dtype}", flush=True)
        try:
            found += PARTS[name](setting)
        except CannotRun as error:
            say(f"{name} failed: {error}")
            failed.append(name)
    write("serving", found)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
