"""The operator at scale, on a real API server with pods faked by kwok: `make bench-operator`.

First a bare client writes what the operator writes for so many endpoints: the endpoints, and the children that one
trial endpoint got, through the same HTTP client. Then the endpoints are made at once in a namespace that the operator
watches. Both are timed from the first write until the last child exists. After that single edits among them are timed
until a watch shows the changed Deployment, and the operator is watched while nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.resources import Resource
from tests.bench.endpoints import (
    KINDS,
    SPEC,
    WATCHED,
    Json,
    all_ready,
    census,
    children_of,
    in_parallel,
    make_endpoints,
    name_of,
    one_at_rest,
    pods_there,
    say,
    until,
)
from tests.bench.results import Result, write
from tests.cluster import Cluster, start_control_plane
from tests.cluster.errors import ClusterError
from tests.cluster.fake_nodes import fake_nodes
from tests.integration.installed import endpoint, install
from tests.integration.operator_process import OperatorProcess

BARE = "bench-bare"
IDLE_S = 30
SETTLE_S = 600
"""At 3,000 endpoints the controllers write for minutes after the last one is Ready."""
BY_KIND = {(kind.api_version, kind.kind): kind for kind in KINDS}
EXAMPLES = """examples:
  python -m tests.bench.operator
  python -m tests.bench.operator --endpoints 3000
  python -m tests.bench.operator --endpoints 50 --edits 20     a quick look
"""


@dataclass(frozen=True)
class Process:
    """What the kernel counts for a process."""

    pid: int

    def cpu_s(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Resident memory; `VmHWM` is the most so far."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


async def bare_run(api: KubeApi, templates: Sequence[Json], trial: str, number: int) -> float:
    """Seconds for the same writes by a client that decides nothing: an endpoint, its children, its first status."""
    text = json.dumps(templates)

    async def make(i: int) -> None:
        name = name_of(i)
        made = await api.create(resources.ENDPOINTS, BARE, endpoint(name, BARE, **SPEC))
        for body in json.loads(text.replace(trial, name).replace(f'"{WATCHED}"', f'"{BARE}"')):
            body["metadata"]["namespace"] = BARE
            await api.create(BY_KIND[body["apiVersion"], body["kind"]], BARE, body)
        status = {**made, "status": {"observedGeneration": 1, "replicas": 0}}
        await api.replace(resources.ENDPOINTS, BARE, name, status, "status")

    began = time.monotonic()
    await in_parallel(number, "bare client", make)
    return time.monotonic() - began


async def operator_run(
    api: KubeApi, operator: OperatorProcess, per_endpoint: dict[Resource, int], number: int
) -> float:
    """Seconds from the first endpoint until the last child of all exists."""
    before = await census(api, WATCHED)
    expected = {kind: before[kind] + per_endpoint[kind] * number for kind in KINDS}

    async def missing() -> str:
        assert operator.pid
        now = await census(api, WATCHED)
        lacking = {kind.plural: expected[kind] - now[kind] for kind in KINDS if now[kind] < expected[kind]}
        return ", ".join(f"{n} {plural} missing" for plural, n in lacking.items())

    began = time.monotonic()
    await make_endpoints(api, WATCHED, number)
    say(f"{number} endpoints are made after {time.monotonic() - began:.1f} s")
    await until("children", missing)
    return time.monotonic() - began


class DeploymentWatch:
    """Tells when an endpoint's Deployment changed its spec: a new one, or another generation."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: dict[str, tuple[str, int]] = {}
        self.changed: dict[str, asyncio.Future[float]] = {}

    async def run(self, version: str) -> None:
        while True:
            async for event in self._api.watch(resources.DEPLOYMENTS, WATCHED, "", version, 300):
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._note(item, time.monotonic())

    def _note(self, item: Json, now: float) -> None:
        owner = item["metadata"]["labels"]["llmendpoint.io/endpoint"]
        state = (item["metadata"]["name"], item["metadata"]["generation"])
        waiting = self.changed.get(owner)
        if waiting is not None and not waiting.done() and self._seen.get(state[0]) != state:
            waiting.set_result(now)
        self._seen[state[0]] = state

    async def time_edit(self, name: str, patch: Json) -> float:
        """Seconds from sending the edit until the watch shows what it did to a Deployment."""
        future = self.changed[name] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        path = resources.ENDPOINTS.path(WATCHED, name)
        await self._api._call("PATCH", path, {}, patch, "application/merge-patch+json")
        changed: float = await asyncio.wait_for(future, 60)
        return changed - began


async def time_bare_edits(api: KubeApi, number: int, edits: int) -> list[float]:
    """Seconds of the two writes that an edit of replicas takes, by a client that decides nothing."""
    taken = []
    for turn in range(min(edits, number)):
        name = name_of(turn * number // min(edits, number))
        [live] = (await api.list(resources.DEPLOYMENTS, BARE, f"llmendpoint.io/endpoint={name}"))["items"]
        change: Json = {"spec": {"replicas": 2}}
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await api.merge(resources.ENDPOINTS, BARE, name, change)
        await api.merge(resources.DEPLOYMENTS, BARE, live["metadata"]["name"], change)
        taken.append(time.monotonic() - began)
    return taken


async def time_edits(api: KubeApi, number: int, edits: int, what: str, spec: Json) -> list[float]:
    """Edits one by one, spread over the endpoints; each begins when the endpoint of the one before is at rest again."""
    listed = await api.list(resources.DEPLOYMENTS, WATCHED)
    watch = DeploymentWatch(api)
    task = asyncio.create_task(watch.run(listed["metadata"]["resourceVersion"]))
    taken = []
    try:
        for turn in range(min(edits, number)):
            name = name_of(turn * number // min(edits, number))
            taken.append(await watch.time_edit(name, {"spec": spec}))
            await one_at_rest(api, name)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    say(
        f"{what}: {len(taken)} edits, median {statistics.median(taken) * 1e3:.0f} ms, most {max(taken) * 1e3:.0f} ms"
    )
    return taken


async def idle(process: Process) -> float:
    """Percent of a core while nothing changes."""
    await asyncio.sleep(5)
    before, began = process.cpu_s(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    return 100 * (process.cpu_s() - before) / (time.monotonic() - began)


def p99(values: Sequence[float]) -> float:
    """The 99th percentile: of 100 values the second largest."""
    ordered = sorted(values)
    return ordered[max(0, -(-99 * len(ordered) // 100) - 1)]


async def measure(api: KubeApi, operator: OperatorProcess, number: int, edits: int) -> list[Result]:
    process, empty = Process(operator.pid), await census(api, WATCHED)
    trial = "trial-endpoint"
    await api.create(resources.ENDPOINTS, WATCHED, endpoint(trial, WATCHED, **SPEC))
    await all_ready(api, WATCHED, "the trial endpoint")
    full = await census(api, WATCHED)
    per_endpoint = {kind: full[kind] - empty[kind] for kind in KINDS}
    templates = await children_of(api, trial)
    children = sum(per_endpoint.values())
    if children != len(templates):
        raise ClusterError(f"the trial endpoint has {children} children, and {len(templates)} were read")
    say(f"an endpoint has {children} children; the bare client begins")
    bare = await bare_run(api, templates, trial, number)
    say(f"bare client: {number * children} children in {bare:.1f} s; waiting until its pods are there")
    await pods_there(api, BARE, number)
    taken, cpu = await operator_run(api, operator, per_endpoint, number), process.cpu_s()
    say(f"operator: {number * children} children in {taken:.1f} s, {cpu:.1f} s of CPU so far")
    await all_ready(api, WATCHED, "endpoints")
    await asyncio.to_thread(operator.settle, SETTLE_S)
    percent, memory, peak = await idle(process), process.memory_mib(), process.memory_mib("VmHWM")
    bare_edits = await time_bare_edits(api, number, edits)
    scaled = await time_edits(api, number, edits, "replicas", {"replicas": 2})
    await all_ready(api, WATCHED, "after the edits")
    revised = await time_edits(
        api, number, edits, "a field that makes a revision", {"engine": {"maxNumSeqs": 3}}
    )
    return [
        compared(f"all children of {number} endpoints", taken, bare, "s", "ratio <= 1.5"),
        *latencies("an edit of replicas reaches its Deployment", scaled, bare_edits),
        *latencies("an edit that makes a revision reaches a Deployment", revised, bare_edits),
        Result("idle CPU", percent, "% of a core", goal="< 1 %"),
        Result(f"memory at {number} endpoints", memory, "MiB", goal="<= 200 MiB" if number <= 1000 else ""),
        Result("most memory so far", peak, "MiB"),
    ]


def compared(what: str, value: float, bare: float, unit: str, goal: str = "") -> Result:
    """A figure beside the bare client's."""
    return Result(what, value, unit, f"bare client, {bare:.3g} {unit}", value / bare, goal)


def latencies(what: str, taken: Sequence[float], bare: Sequence[float]) -> tuple[Result, Result]:
    """Median and 99th percentile, in milliseconds, beside the bare client's two writes."""
    p50, bare_p50 = (1e3 * statistics.median(values) for values in (taken, bare))
    return (
        compared(f"{what}, p50", p50, bare_p50, "ms"),
        compared(f"{what}, p99", 1e3 * p99(taken), 1e3 * p99(bare), "ms", "<= 50 ms"),
    )


async def run(cluster: Cluster, number: int, edits: int) -> list[Result]:
    for namespace in (WATCHED, BARE):
        cluster.kubectl("create", "namespace", namespace)
    credentials = await Credentials.load(str(cluster.kubeconfig))
    async with KubeApi(credentials) as api:
        with OperatorProcess(cluster, "--watch-namespace", WATCHED, "--lease-seconds", "15") as operator:
            return await measure(api, operator, number, edits)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write build/bench/operator.json."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.operator",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--endpoints", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--edits", type=int, default=100, help="single edits of each kind (default: 100)")
    arguments = parser.parse_args(argv)
    try:
        cluster = start_control_plane(f"bench-{os.getpid()}")
        try:
            install(cluster)
            with fake_nodes(cluster):
                results = asyncio.run(run(cluster, arguments.endpoints, arguments.edits))
        finally:
            cluster.stop()
    except ClusterError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    write("operator", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
