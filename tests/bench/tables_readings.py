"""Readings of the loads of thousands of busy replicas: how old they get, and what they cost.

The picker's own loop reads a stub on as many addresses of this machine as there are replicas.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from gateway.tests.one_endpoint import parts_of
from llmendpoint_gateway.core.endpoint.objects import parse_endpoint, parse_slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.placement.routing import cluster_name
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.parts import Parts
from llmendpoint_gateway.watch.load_readings import Readings
from tests.bench.objects import REPLICAS, REVISIONS, endpoint_object, slice_object
from tests.bench.results import Result
from tests.ports import free_port

WARM_UP, SECONDS = 8.0, 10.0
LOOK_SECONDS = 0.25
STUB = """
import asyncio, sys, uvloop
BODY = b'{"waiting":0,"running":3,"outstanding_tokens":900,"kv_usage":0.25,"max_num_seqs":64,"instance":"a","adapters":[]}'
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY) + BODY
class Engine(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER * data.count(b"\\r\\n\\r\\n"))
async def serve():
    server = await asyncio.get_running_loop().create_server(Engine, "0.0.0.0", int(sys.argv[1]), backlog=4096)
    print("listening", flush=True)
    await server.serve_forever()
uvloop.run(serve())
"""


@dataclass(frozen=True)
class Seen:
    """While all were busy. `cpu`: share of a core. `known`: the fewest replicas with a valid reading, at any look."""

    cpu: float
    known: int
    oldest: float
    read: float


@contextlib.contextmanager
def stub() -> Iterator[int]:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", STUB, str(port)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield port
        finally:
            process.kill()


async def measure(replicas: int, port: int) -> Seen:
    parts = parts_of(Ads(), time.monotonic)
    addresses = make_busy(parts, replicas // (REPLICAS * len(REVISIONS)), port)
    readings = Readings(parts.placement, parts.held, parts.outcomes, time.monotonic)
    reading = asyncio.create_task(readings.run())
    await asyncio.sleep(WARM_UP)
    known, oldest, loads = len(addresses), 0.0, parts.placement.loads
    cpu, start, last, read = time.thread_time(), time.monotonic(), dict[str, float](), 0
    for _ in range(int(SECONDS / LOOK_SECONDS)):
        await asyncio.sleep(LOOK_SECONDS)
        now, found = time.monotonic(), {address: loads.of(address) for address in addresses}
        times = {address: reading[1] for address, reading in found.items() if reading}
        known, oldest = min(known, len(times)), max([oldest, *(now - at for at in times.values())])
        read += sum(last.get(address) != at for address, at in times.items())
        last = times
    cpu, taken = time.thread_time() - cpu, time.monotonic() - start
    reading.cancel()
    return Seen(cpu / taken, known, oldest, read / taken)


def make_busy(parts: Parts, endpoints: int, port: int) -> list[str]:
    """All replicas of so many endpoints, each with a request."""
    control, addresses = parts.control, []
    known = {f"team/chat{n}": parse_endpoint(endpoint_object(n)) for n in range(endpoints)}
    control.relisted(Kind.ENDPOINT, known)
    slices = {}
    for n in range(endpoints):
        for revision in REVISIONS:
            found = slices[f"team/chat{n}-{revision}"] = parse_slice(slice_object(n, revision, port=port))
            for replica in found.replicas:
                addresses.append(replica.address)
                parts.placement.in_flight.take(cluster_name(found.endpoint, revision), replica.address)
    control.relisted(Kind.SLICE, slices)
    return addresses


def run(replicas: int) -> list[Result]:
    results = []
    for many in (replicas // 5, replicas):
        print(f"readings of {many:,} busy replicas", flush=True)
        with stub() as port:
            seen = uvloop.run(measure(many, port))
        results += [
            Result(
                f"of {many:,} busy replicas, those with a valid reading at any moment",
                seen.known,
                "",
                goal=f"= {many}",
            ),
            Result("oldest of their readings", seen.oldest, "s"),
            Result("readings a second", seen.read, "1/s"),
            Result("decision loop for the readings", seen.cpu * 100, "% of a core", goal="<= 25 % of a core"),
        ]
    return results
