"""Requests through a whole gateway while EndpointSlices change, and without changes: rounds in turn."""

import asyncio
import statistics
import threading
import time
from dataclasses import dataclass

from gateway.tests.bounds import cpu_seconds, wait_for
from gateway.tests.harness import Gateway, running_gateway
from tests.bench.bare_http import Connection, chat_request
from tests.bench.objects import REVISIONS, endpoint_object, slice_object
from tests.bench.results import Result

EVENTS_A_SECOND = 20
STEP = 37  # to the next endpoint that changes: no two events are beside each other
PATIENCE = 300.0
ROUNDS, ROUND_SECONDS = 5, 5.0
CLIENTS = 32
BODY_BYTES = 1200


@dataclass(frozen=True)
class Round:
    """Of one round: seconds of each request; CPU seconds by process; events that came meanwhile."""

    latencies: list[float]
    picker_cpu: float
    envoy_cpu: float
    events: int

    def percentile(self, share: float) -> float:
        return sorted(self.latencies)[int(len(self.latencies) * share)] * 1e3


class Changes(threading.Thread):
    """Replicas of other endpoints become ready and unready, until `close`."""

    def __init__(self, gateway: Gateway, endpoints: int) -> None:
        super().__init__(daemon=True)
        self._gateway, self._endpoints = gateway, endpoints
        self._end = threading.Event()
        self.events = 0
        self.start()

    def run(self) -> None:
        unready: set[int] = set()
        while not self._end.wait(1 / EVENTS_A_SECOND):
            n = self.events * STEP % self._endpoints
            unready ^= {n}
            body = slice_object(n, REVISIONS[0], n not in unready)
            self._gateway.api.put("endpointslices", body)
            self.events += 1

    def close(self) -> None:
        self._end.set()
        self.join()


async def client(port: int, request: bytes, until: float, pause: float) -> list[float]:
    """Seconds of each request, from when it was due: one that waits for the one before it counts as late."""
    connection, taken = await Connection.open(port), []
    due = time.perf_counter()
    while due < until:
        await asyncio.sleep(due - time.perf_counter())
        answer = await connection.ask(request)
        if answer.status != 200:
            raise RuntimeError(f"the answer was {answer.status}: {answer.body[:200]!r}")
        taken.append(time.perf_counter() - due)
        due += pause
    connection.close()
    return taken


async def requests(gateway: Gateway, model: str, rate: int) -> list[float]:
    request, until = chat_request(model, BODY_BYTES), time.perf_counter() + ROUND_SECONDS
    clients = []
    for _ in range(CLIENTS):
        clients.append(asyncio.create_task(client(gateway.port, request, until, CLIENTS / rate)))
        await asyncio.sleep(1 / rate)
    return [seconds for part in await asyncio.gather(*clients) for seconds in part]


def one_round(gateway: Gateway, model: str, rate: int, endpoints: int, changing: bool) -> Round:
    processes = (gateway.picker.pid, gateway.envoy.pid)
    before = [cpu_seconds(pid) for pid in processes]
    changes = Changes(gateway, endpoints) if changing else None
    latencies = asyncio.run(requests(gateway, model, rate))
    if changes:
        changes.close()
    cpu = [cpu_seconds(pid) - spent for pid, spent in zip(processes, before, strict=True)]
    return Round(latencies, cpu[0], cpu[1], changes.events if changes else 0)


def run(endpoints: int, rate: int) -> list[Result]:
    print(f"a gateway with {endpoints:,} endpoints, {rate} requests/s", flush=True)
    with running_gateway() as gateway:
        backends = [gateway.backend(name) for name in ("a", "b")]
        model = f"team/{gateway.endpoint(*backends, name='asked')}"
        for n in range(endpoints):
            gateway.api.put("llmendpoints", endpoint_object(n))
            for revision in REVISIONS:
                gateway.api.put("endpointslices", slice_object(n, revision))
        wait_for(lambda: len(gateway.state()["endpoints"]) > endpoints, "all are known", PATIENCE)
        gateway.settled()
        rounds: dict[bool, list[Round]] = {False: [], True: []}
        for turn in range(ROUNDS + 1):
            for changing, kept in rounds.items():
                one = one_round(gateway, model, rate, endpoints, changing)
                print(
                    f"  round {turn} of {ROUNDS}, {one.events} events: p50 {one.percentile(0.5):.1f} ms, "
                    f"p99 {one.percentile(0.99):.1f} ms, CPU of picker {one.picker_cpu:.2f} s, "
                    f"of Envoy {one.envoy_cpu:.2f} s",
                    flush=True,
                )
                if turn:
                    kept.append(one)
            gateway.settled()
    return results_of(rounds[False], rounds[True], rate)


def results_of(still: list[Round], changing: list[Round], rate: int) -> list[Result]:
    plain, moved = (statistics.median(r.percentile(0.99) for r in side) for side in (still, changing))
    events = sum(r.events for r in changing)
    more = {
        "picker": sum(r.picker_cpu for r in changing) - sum(r.picker_cpu for r in still),
        "Envoy": sum(r.envoy_cpu for r in changing) - sum(r.envoy_cpu for r in still),
    }
    what = f"at {rate} requests/s, {EVENTS_A_SECOND} events/s"
    return [
        Result(f"p99 {what}", moved, "ms", "without events", moved / plain),
        Result("p99 that the events add", moved - plain, "ms", goal="<= 10 ms"),
        *(Result(f"CPU of the {who}, an event", spent / events * 1e3, "ms") for who, spent in more.items()),
    ]
