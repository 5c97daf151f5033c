"""The gateway beside a direct call of the same engine: `make bench-gateway`.

The engine is a stub that answers at once, so that what is measured is the way there. Rounds alternate between the
direct call and the gateway, so that a noisy machine spoils both alike; the CPU time of the picker is what the kernel
counted for its process. Then what an open breaker does (open_breaker.py).
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.tests.bounds import cpu_seconds
from gateway.tests.harness import Gateway, running_gateway
from tests.bench import open_breaker
from tests.bench.bare_http import Connection, chat_request
from tests.bench.results import Result, write

ROUNDS = 5
BODY_BYTES = 1200
CONCURRENT = 32


@dataclass(frozen=True)
class Sample:
    """One round: seconds per request, requests per second, CPU seconds per request by process."""

    latencies: list[float]
    per_second: float
    picker_cpu: float
    envoy_cpu: float

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


async def client(port: int, request: bytes, requests: int) -> list[float]:
    """Seconds of each of so many requests on one connection."""
    connection, taken = await Connection.open(port), []
    for _ in range(requests):
        answer = await connection.ask(request)
        if answer.status != 200:
            raise RuntimeError(f"the answer was {answer.status}: {answer.body[:200]!r}")
        taken.append(answer.seconds)
    connection.close()
    return taken


async def measure(gateway: Gateway, port: int, model: str, clients: int, requests: int) -> Sample:
    processes = (gateway.picker.pid, gateway.envoy.pid)
    request, before, start = (
        chat_request(model, BODY_BYTES),
        [cpu_seconds(p) for p in processes],
        time.perf_counter(),
    )
    parts = await asyncio.gather(*(client(port, request, requests // clients) for _ in range(clients)))
    seconds = time.perf_counter() - start
    latencies = [taken for part in parts for taken in part]
    cpu = [(cpu_seconds(p) - b) / len(latencies) for p, b in zip(processes, before, strict=True)]
    return Sample(latencies, len(latencies) / seconds, cpu[0], cpu[1])


async def compare(
    gateway: Gateway, model: str, direct: int, clients: int, requests: int
) -> tuple[list[Sample], list[Sample]]:
    """Rounds of (direct, through the gateway) in turn, after one of each that is not counted."""
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    for turn in range(ROUNDS + 1):
        for kept, port in zip(samples, (direct, gateway.port), strict=True):
            sample = await measure(gateway, port, model, clients, requests)
            if turn:
                kept.append(sample)
        if turn:
            a, b = samples[0][-1], samples[1][-1]
            print(
                f"  {clients} concurrent, round {turn} of {ROUNDS}: direct p50 {a.p50 * 1e3:.2f} ms, gateway p50 "
                f"{b.p50 * 1e3:.2f} ms, {b.per_second:.0f} requests/s, picker {b.picker_cpu * 1e6:.0f} us each",
                flush=True,
            )
    return samples


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


async def run(gateway: Gateway) -> list[Result]:
    backends = [gateway.backend(name) for name in ("a", "b")]
    name = await asyncio.to_thread(gateway.endpoint, *backends)
    model, direct = f"team/{name}", backends[0].port
    one = await compare(gateway, model, direct, 1, 1000)
    many = await compare(gateway, model, direct, CONCURRENT, 4000)
    plain, through = median([s.p50 for s in one[0]]) * 1e3, median([s.p50 for s in one[1]]) * 1e3
    added = median([(b.p50 - a.p50) * 1e3 for a, b in zip(*one, strict=True)])
    cpu = median([s.picker_cpu for s in many[1]]) * 1e6
    rates = [median([s.per_second for s in side]) for side in many]
    return [
        Result("Python CPU per decision, 1.2 kB body", cpu, "us", goal="<= 400 us"),
        Result("Envoy CPU per request, 1.2 kB body", median([s.envoy_cpu for s in many[1]]) * 1e6, "us"),
        Result("added p50 at 1 concurrent", added, "ms", "direct call", through / plain, "<= 1.5 ms"),
        Result("p50 at 1 concurrent, direct", plain, "ms"),
        Result("p50 at 1 concurrent, gateway", through, "ms"),
        Result(
            f"requests/s at {CONCURRENT} concurrent, gateway",
            rates[1],
            "1/s",
            f"direct call, {rates[0]:.0f}/s",
            rates[1] / rates[0],
        ),
        *await open_breaker.run(gateway),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.gateway",
        description=__doc__,
        epilog="example:\n  python -m tests.bench.gateway",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    print("starting the gateway and two stub engines", flush=True)
    with running_gateway() as gateway:
        results = asyncio.run(run(gateway))
    write("gateway", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
