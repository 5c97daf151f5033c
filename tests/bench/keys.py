"""What API keys cost a decision: a gateway with `--authentication required` beside one without, `python -m tests.bench.keys`.

Rounds alternate between the two, so that a noisy machine spoils both alike. The engines are stubs that answer at once.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence

from gateway.tests.bounds import cpu_seconds
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.keys import put_key
from tests.bench.bare_http import chat_request
from tests.bench.gateway import client
from tests.bench.results import Result, write

ROUNDS, REQUESTS, CONCURRENT, BODY_BYTES = 7, 3000, 16, 1200


async def measure(gateway: Gateway, request: bytes) -> tuple[float, float, float]:
    """Microseconds of the picker's and of Envoy's CPU for a request, and the median latency."""
    processes = (gateway.picker.pid, gateway.envoy.pid)
    before = [cpu_seconds(pid) for pid in processes]
    parts = await asyncio.gather(
        *(client(gateway.port, request, REQUESTS // CONCURRENT) for _ in range(CONCURRENT))
    )
    taken = [seconds for part in parts for seconds in part]
    cpu = [(cpu_seconds(pid) - b) / len(taken) for pid, b in zip(processes, before, strict=True)]
    return cpu[0] * 1e6, cpu[1] * 1e6, statistics.median(taken) * 1e6


def prepared(gateway: Gateway, text: str = "") -> bytes:
    """The request that is measured, for an endpoint with two replicas."""
    name = gateway.endpoint(gateway.backend("a"), gateway.backend("b"))
    request = chat_request(f"team/{name}", BODY_BYTES)
    return request.replace(b"host:", f"authorization: Bearer {text or 'unused'}\r\nhost:".encode(), 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.keys", description=__doc__)
    parser.parse_args(argv)
    with running_gateway() as off, running_gateway(authentication="required") as required:
        text = put_key(required.api)
        sides = ((off, prepared(off)), (required, prepared(required, text)))
        time.sleep(0.5)
        samples: tuple[list[tuple[float, float, float]], ...] = ([], [])
        for turn in range(ROUNDS + 1):
            for kept, (gateway, request) in zip(samples, sides, strict=True):
                sample = asyncio.run(measure(gateway, request))
                if turn:
                    kept.append(sample)
    medians = [[statistics.median(column) for column in zip(*side, strict=True)] for side in samples]
    rows = ("Python CPU per decision", "Envoy CPU per request", f"p50 at {CONCURRENT} concurrent")
    results = [
        Result(f"{row}, with a key", medians[1][n], "us", f"without, {medians[0][n]:.0f} us", medians[1][n] / medians[0][n])
        for n, row in enumerate(rows)
    ]  # fmt: skip
    write("keys", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
