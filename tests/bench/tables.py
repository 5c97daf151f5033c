"""What one change of an EndpointSlice costs the gateway: `make bench-tables`.

First the decision loop alone: the picker's parts run in this process, a real Envoy is connected to them, and replicas
become ready and unready one after the other. CPU time of the thread that decides, not wall time: the machine may be
busy. Then the readings of the replicas' loads (tables_readings.py). Then a whole gateway with requests: their latencies with such changes and without, in turn (tables_under_load.py).
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import uvloop

from gateway.tests.bounds import cpu_seconds
from gateway.tests.picker_in_process import envoy_alone, picker, settled
from llmendpoint_gateway.core.endpoint.objects import parse_endpoint, parse_slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.placement.routing import Table
from llmendpoint_gateway.serve.parts import Parts
from tests.bench import tables_readings, tables_under_load
from tests.bench.objects import REPLICAS, REVISIONS, endpoint_object, slice_object
from tests.bench.results import Result, write
from tests.bench.tables_under_load import PATIENCE, STEP

WARM_UP, EVENTS = 20, 200


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one event, in the thread of the decision loop: until Envoy is told, and for its acknowledgement."""

    change: float
    acknowledgement: float

    @property
    def total(self) -> float:
        return self.change + self.acknowledgement


@dataclass(frozen=True)
class Costs:
    """`process`: CPU seconds an event of all threads; `envoy`: of Envoy's process."""

    events: list[Cost]
    process: float
    envoy: float


async def measure(endpoints: int, events: int = EVENTS) -> Costs:
    async with envoy_alone() as envoy, picker(envoy) as parts:
        fill(parts, endpoints)
        await settled(parts, PATIENCE)
        await asyncio.sleep(0.5)
        return await follow(parts, envoy.envoy, endpoints, events)


def fill(parts: Parts, endpoints: int) -> None:
    parts.control.relisted(
        Kind.ENDPOINT, {f"team/chat{n}": parse_endpoint(endpoint_object(n)) for n in range(endpoints)}
    )
    parts.control.relisted(
        Kind.SLICE,
        {
            f"team/chat{n}-{revision}": parse_slice(slice_object(n, revision))
            for n in range(endpoints)
            for revision in REVISIONS
        },
    )


async def follow(parts: Parts, envoy: subprocess.Popen[bytes], endpoints: int, events: int) -> Costs:
    costs, unready = [], dict[int, bool]()
    process = of_envoy = 0.0
    for turn in range(WARM_UP + events):
        if turn == WARM_UP:
            process, of_envoy = time.process_time(), cpu_seconds(envoy.pid)
        n = turn * STEP % endpoints
        unready[n] = not unready.get(n, False)
        line = json.dumps({"type": "MODIFIED", "object": slice_object(n, REVISIONS[0], not unready[n])})
        costs.append(await one_event(parts, line, f"team/chat{n}", REPLICAS - unready[n]))
    spent = time.process_time() - process, cpu_seconds(envoy.pid) - of_envoy
    return Costs(costs[WARM_UP:], spent[0] / events, spent[1] / events)


async def one_event(parts: Parts, line: str, key: str, routable: int) -> Cost:
    """The event as the watch takes it, until the table follows Envoy's acknowledgement of it."""
    control, ads, placement = parts.control, parts.ads, parts.placement
    routed, route_by = asyncio.Event(), placement.route_by

    def noted(table: Table, started: bool) -> None:
        route_by(table, started)
        routed.set()

    with patch.object(placement, "route_by", noted):
        start = time.thread_time()
        body = json.loads(line)["object"]
        control.applied(Kind.SLICE, f"team/{body['metadata']['name']}", parse_slice(body))
        await routed.wait()
        changed = time.thread_time()
        while ads.acknowledged_generation < control.generation:
            routed.clear()
            await asyncio.wait_for(routed.wait(), PATIENCE)
        cost = Cost(changed - start, time.thread_time() - changed)
    route = placement.route(key)
    assert route is not None
    assert len(route.targets[0].addresses) == routable
    return cost


def results_of(costs: Costs, endpoints: int) -> list[Result]:
    many = f"{endpoints * len(REVISIONS) * REPLICAS:,} replicas of {endpoints:,} endpoints"
    totals = sorted(cost.total * 1e3 for cost in costs.events)
    return [
        Result(
            f"decision loop, an event and its ACK, {many}", statistics.median(totals), "ms", goal="<= 2 ms"
        ),
        Result("of that until Envoy is told", median(cost.change for cost in costs.events), "ms"),
        Result(
            "of that for the acknowledgement", median(cost.acknowledgement for cost in costs.events), "ms"
        ),
        Result("95th percentile of the events", totals[len(totals) * 95 // 100], "ms"),
        Result("all threads of the picker, an event", costs.process * 1e3, "ms"),
        Result("Envoy, an event", costs.envoy * 1e3, "ms"),
    ]


def median(seconds: Iterable[float]) -> float:
    """In milliseconds."""
    return statistics.median(seconds) * 1e3


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.tables",
        description=__doc__,
        epilog="example:\n  python -m tests.bench.tables --endpoints 100 --no-requests",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--endpoints", type=int, default=1000, help="each with 2 revisions of 2 replicas (1000)"
    )
    parser.add_argument("--rate", type=int, default=1000, help="requests a second, while events come (1000)")
    parser.add_argument("--busy", type=int, default=5000, help="replicas whose loads are read (5000)")
    parser.add_argument("--no-requests", action="store_true", help="without the gateway under requests")
    options = parser.parse_args(argv)
    results = []
    for endpoints in (options.endpoints // 10, options.endpoints):
        print(f"{endpoints:,} endpoints in a picker, with an Envoy", flush=True)
        results += results_of(uvloop.run(measure(endpoints)), endpoints)
    results += tables_readings.run(options.busy)
    if not options.no_requests:
        results += tables_under_load.run(options.endpoints, options.rate)
    write("tables", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
