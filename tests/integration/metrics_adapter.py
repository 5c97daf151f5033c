"""The least that a metrics adapter is: external.metrics.k8s.io, answered from one Prometheus registry."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from tests.cluster import Cluster
from tests.cluster.certificates import Identity, write_pki

GROUP = "external.metrics.k8s.io/v1beta1"
SERVICE = {"namespace": "default", "name": "metrics-adapter"}


@contextlib.asynccontextmanager
async def serving(cluster: Cluster, registry: CollectorRegistry, folder: Path) -> AsyncIterator[None]:
    """Known to the API server while the block runs."""
    write_pki(folder, [Identity("adapter", "adapter", names=("localhost",))])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "adapter.crt", folder / "adapter.key")

    async def kinds(_: web.Request) -> web.Response:
        return _answer("APIResourceList", groupVersion=GROUP, resources=[])

    async def values(request: web.Request) -> web.Response:
        return _values(registry, request)

    app = web.Application()
    app.add_routes([
        web.get(f"/apis/{GROUP}", kinds), web.get(f"/apis/{GROUP}/namespaces/{{namespace}}/{{metric}}", values),
    ])  # fmt: skip
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    for manifest in _manifests(port):
        cluster.apply(manifest)
    try:
        yield
    finally:
        for manifest in _manifests(port):
            cluster.kubectl("delete", manifest["kind"], manifest["metadata"]["name"], "-n", "default")
        await runner.cleanup()


def _manifests(port: int) -> list[dict[str, Any]]:
    """There is no network of Services in a control plane alone, but an external name needs none."""
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": SERVICE,
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }  # fmt: skip
    version, group = "v1beta1", "external.metrics.k8s.io"
    api = {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True, "service": {**SERVICE, "port": port},
        },
    }  # fmt: skip
    return [service, api]


def _values(registry: CollectorRegistry, request: web.Request) -> web.Response:
    """The samples that fit the namespace and the selector; none is an empty list, which a HorizontalPodAutoscaler takes
    for what it is."""
    wanted = dict(pair.split("=") for pair in request.query["labelSelector"].split(","))
    wanted["namespace"] = request.match_info["namespace"]
    name = request.match_info["metric"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {"metricName": name, "metricLabels": sample.labels, "timestamp": now, "value": str(int(sample.value))}
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name and wanted.items() <= sample.labels.items()
    ]
    return _answer("ExternalMetricValueList", metadata={}, items=items)


def _answer(kind: str, **fields: Any) -> web.Response:
    version = "v1" if kind == "APIResourceList" else GROUP
    return web.json_response({"kind": kind, "apiVersion": version, **fields})
