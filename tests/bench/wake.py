"""From a request that finds its endpoint at zero to the pod that it wakes: part of `make bench-wake`.

Real Envoy, picker, operator and control plane; no kubelet, so the pods stay Pending and every wake is the same. The
clock runs from the client's last sent byte until a watch of pods shows the endpoint's first. Each endpoint wakes once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.tests.harness import Gateway, running_gateway
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.resources import PODS
from tests.bench.bare_http import chat_request
from tests.bench.results import Result, write
from tests.cluster import Cluster, start_control_plane
from tests.integration.installed import endpoint, install
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

WAKES = 60
PAUSE_S = 0.3
LIMIT_S = 30
ENDPOINT = "llmendpoint.io/endpoint"
LABELS = {"app.kubernetes.io/name": "llmendpoint-gateway", "app.kubernetes.io/component": "gateway"}
SPEC: dict[str, Any] = {
    "replicas": 0,
    "autoscaling": {"minReplicas": 0, "maxReplicas": 2},
    "traffic": {"queue": {"timeoutSeconds": LIMIT_S}},
}


@contextlib.contextmanager
def stage(cluster: Cluster) -> Iterator[tuple[Namespace, Gateway]]:
    """A namespace with the real gateway, which the operator finds as a Ready pod there."""
    install(cluster)
    namespace = Namespace(cluster)
    pod = {"metadata": {"name": "gateway", "namespace": namespace.name, "labels": LABELS}}
    container = {"name": "picker", "image": "localhost/gateway:1"}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    cluster.wait_for("the namespace's account", lambda: namespace.get("serviceaccount", "default"))
    cluster.apply({"apiVersion": "v1", "kind": "Pod", **pod, "spec": spec})
    address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **address}
    namespace.write_pod_status("gateway", ready)
    with running_gateway(cluster.kubeconfig) as gateway:
        where = ("--gateway-namespace", namespace.name, "--gateway-state-port", str(gateway.http_port))
        with OperatorProcess(cluster, "--watch-namespace", namespace.name, *where):
            yield namespace, gateway


def make_endpoints(namespace: Namespace, gateway: Gateway, count: int) -> list[str]:
    """Names of endpoints that are at zero, as everybody knows."""
    names = [f"sleeper-{number}" for number in range(count)]
    namespace.cluster.apply(*(endpoint(name, namespace.name, **SPEC) for name in names))

    def at_zero() -> bool:
        deployments = {d["metadata"]["labels"][ENDPOINT]: d for d in namespace.items("deployments")}
        known = gateway.state()["endpoints"]
        return all(
            name in deployments
            and deployments[name].get("status", {}).get("observedGeneration")
            and f"{namespace.name}/{name}" in known
            for name in names
        )

    namespace.cluster.wait_for(f"{count} endpoints at zero", at_zero, 120)
    return names


async def watch_pods(api: KubeApi, namespace: str, created: dict[str, asyncio.Future[float]]) -> None:
    """Resolves each endpoint's future with the moment at which its first pod was seen."""
    version = (await api.list(PODS, namespace))["metadata"]["resourceVersion"]
    async for event in api.watch(PODS, namespace, ENDPOINT, version, 600):
        if event["type"] == "ADDED":
            first = created[event["object"]["metadata"]["labels"][ENDPOINT]]
            if not first.done():
                first.set_result(time.perf_counter())


async def wake(gateway: Gateway, model: str, created: asyncio.Future[float]) -> float:
    """Seconds from the request, which is given up then."""
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    began = time.perf_counter()
    writer.write(chat_request(model, 1200))
    seconds = await asyncio.wait_for(created, LIMIT_S) - began
    writer.close()
    return seconds


async def run(namespace: Namespace, gateway: Gateway, names: Sequence[str]) -> list[float]:
    credentials = await Credentials.load(str(namespace.cluster.kubeconfig))
    loop = asyncio.get_running_loop()
    created: dict[str, asyncio.Future[float]] = {name: loop.create_future() for name in names}
    taken: list[float] = []
    async with KubeApi(credentials) as api:
        watch = asyncio.create_task(watch_pods(api, namespace.name, created))
        await asyncio.sleep(1)
        for name in names:
            taken.append(await wake(gateway, f"{namespace.name}/{name}", created[name]))
            if len(taken) % 10 == 0:
                print(f"  {len(taken)} wakes, median {statistics.median(taken) * 1e3:.0f} ms", flush=True)
            await asyncio.sleep(PAUSE_S)
        watch.cancel()
    return taken


def results(taken: Sequence[float]) -> list[Result]:
    what, percentiles = "request at zero to its pod's creation", statistics.quantiles(taken, n=20)
    return [
        Result(f"{what}, p50 of {len(taken)}", percentiles[9] * 1e3, "ms"),
        Result(f"{what}, p95 of {len(taken)}", percentiles[18] * 1e3, "ms", goal="<= 200 ms"),
        Result(f"{what}, longest", max(taken) * 1e3, "ms"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.wake",
        description=__doc__,
        epilog="example:\n  python -m tests.bench.wake",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    print("starting a control plane, the gateway and the operator", flush=True)
    cluster = start_control_plane("bench-wake")
    try:
        with stage(cluster) as (namespace, gateway):
            names = make_endpoints(namespace, gateway, WAKES)
            taken = asyncio.run(run(namespace, gateway, names))
    finally:
        cluster.stop()
    write("wake", results(taken))
    return 0


if __name__ == "__main__":
    sys.exit(main())
