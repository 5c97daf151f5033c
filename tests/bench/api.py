"""CPU of the API process for each token that it streams: `make bench-api`.

The real API process serves streaming chat requests. Its engine is a fake at the wire, which makes one token a step for
each request, at a steady rate, from the request's own text. So every token passes the socket of the two processes, the
tokenizer of the demo model, JSON and HTTP. In turn with it, a bare server writes bytes that it made before, as often to
as many callers: no server that writes each token to its caller at once takes less.

The callers are in this process. What is counted is the CPU time that the kernel notes for the server's process, while
all streams run. Then the work for a token alone, without the sockets, and the engine's part: the messages of one step,
written to a socket that is read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

from server.tests.server_process import ServerProcess
from tests.bench import api_work, bare_stream, engine_messages
from tests.bench.bare_http import post
from tests.bench.results import Result, write

STEPS = {64: 0.005, 256: 0.01}
"""Callers, and seconds from one step to the next, beside the fake engine's own work: steps as fast as those of a small
model on a large GPU."""
START_LIMIT_S = 60
WARM_UP_S = 0.5
MEASURED_S = 3.0
PROMPT_CHARACTERS = 1000
TEXT = Path(__file__).parent.parent.parent / "docs" / "concepts" / "architecture.md"
LONG = "1000000"
"""Tokens of the model's length: no stream ends while it is measured."""


@dataclass(frozen=True)
class Sample:
    """One round: tokens, the writes in which they arrived, and CPU seconds of the server's process."""

    tokens: int
    reads: int
    cpu: float
    seconds: float

    @property
    def us_a_token(self) -> float:
        return self.cpu / self.tokens * 1e6


class Caller(asyncio.Protocol):
    """Sends one request and counts what comes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.begun = asyncio.Event()
        self.reads = self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self.events += data.count(b"data: ")
        self.begun.set()


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, in the kernel's nanoseconds: /proc/<pid>/stat counts in steps of 10 ms."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def requests(callers: int) -> list[bytes]:
    """A different part of the text for each caller."""
    text = TEXT.read_text()
    starts = [n * (len(text) - PROMPT_CHARACTERS) // callers for n in range(callers)]
    parts = [{"role": "user", "content": text[at : at + PROMPT_CHARACTERS]} for at in starts]
    return [
        post(json.dumps({"model": "demo", "messages": [part], "stream": True}).encode()) for part in parts
    ]


async def measure(port: int, pid: int, callers: int, tokens: Callable[[], int] | None) -> Sample:
    """Streams to so many callers. `tokens`: how many the engine has made; None: an event is a token."""
    loop = asyncio.get_running_loop()
    streams = [Caller(request) for request in requests(callers)]
    for stream in streams:
        await loop.create_connection(partial(lambda protocol: protocol, stream), "127.0.0.1", port)
    async with asyncio.timeout(60):
        for stream in streams:
            await stream.begun.wait()
    await asyncio.sleep(WARM_UP_S)

    async def now() -> tuple[int, int, float, float]:
        made = await asyncio.to_thread(tokens) if tokens else sum(stream.events for stream in streams)
        return made, sum(stream.reads for stream in streams), cpu_seconds(pid), time.perf_counter()

    before = await now()
    await asyncio.sleep(MEASURED_S)
    after = await now()
    for stream in streams:
        stream.transport.abort()
    made, reads, cpu, seconds = (b - a for a, b in zip(before, after, strict=True))
    return Sample(int(made), int(reads), cpu, seconds)


@contextlib.contextmanager
def bare_server(step: float) -> Iterator[tuple[int, int]]:
    """Port and process id of a server that writes one ready event a step to each caller. Raises RuntimeError if it does
    not start."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=bare_stream.serve, args=(step, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    try:
        try:
            port = ours.recv() if ours.poll(START_LIMIT_S) else 0
        except EOFError:
            port = 0
        if not port:
            raise RuntimeError("the bare server has not started; its own error is above")
        yield port, process.pid or 0
    finally:
        process.terminate()
        process.join()


def made_by(server: ServerProcess) -> Callable[[], int]:
    def tokens() -> int:
        page = urllib.request.urlopen(server.url + "/metrics", timeout=30).read().decode()
        line = next(line for line in page.splitlines() if line.startswith("vllm:generation_tokens_total"))
        return int(float(line.rsplit(" ", 1)[1]))

    return tokens


def compare(callers: int, rounds: int) -> list[Result]:
    """Rounds of (server, bare server) in turn, after one of each that is not counted."""
    step = STEPS[callers]
    ours: list[Sample] = []
    bare: list[Sample] = []
    fake = {"delay": step, "max_running": callers}
    with ServerProcess("--max-model-len", LONG, fake=fake) as server, bare_server(step) as (port, pid):
        own_port, tokens = int(server.wait_ready().url.rsplit(":", 1)[1]), made_by(server)
        for turn in range(rounds + 1):
            a = uvloop.run(measure(own_port, server.process.pid, callers, tokens))
            b = uvloop.run(measure(port, pid, callers, None))
            if turn:
                ours.append(a)
                bare.append(b)
            print(
                f"  {callers} callers, round {turn}: {a.us_a_token:.1f} us a token at {a.tokens / a.seconds:.0f} tokens/s "
                f"({a.tokens / a.reads:.2f} tokens a read), bare {b.us_a_token:.1f} us at {b.tokens / b.seconds:.0f}",
                flush=True,
            )
    spent = [statistics.median(sample.us_a_token for sample in samples) for samples in (ours, bare)]
    ratio = statistics.median(a.us_a_token / b.us_a_token for a, b in zip(ours, bare, strict=True))
    against = f"a bare server that writes ready bytes: {spent[1]:.1f} us"
    rate = statistics.median(sample.tokens / sample.seconds for sample in ours)
    load = f"load {os.getloadavg()[0]:.1f} with this benchmark"
    metric = f"CPU of the API process a token, {callers} streams, {rate:.0f} tokens/s, {load}"
    return [Result(metric, spent[0], "us", against, ratio, "<= 5 us")]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.api",
        description=__doc__,
        epilog="example: python -m tests.bench.api --rounds 3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, at least 3 (default 5)")
    arguments = parser.parse_args()
    if arguments.rounds < 3:
        parser.error(f"--rounds is {arguments.rounds}; a median needs at least 3")
    rows = [row for callers in STEPS for row in compare(callers, arguments.rounds)]
    write("api", [*rows, api_work.result(), *engine_messages.results(tuple(STEPS))])


if __name__ == "__main__":
    main()
