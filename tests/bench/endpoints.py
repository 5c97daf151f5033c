"""Many endpoints on a real API server: made, counted, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.resources import Resource
from tests.cluster.errors import ClusterError
from tests.integration.installed import endpoint

Json = dict[str, Any]

WATCHED = "bench"
AT_ONCE = 16
"""Endpoints at a time of the bare client: twice as many as the operator has workers, so that it is no easy mark."""

LIMIT_S = 1800
KINDS = tuple(kind for kind in resources.CHILDREN if not kind.optional)
SPEC = {"rollout": {"scaleDownDelay": 0, "observe": {"duration": 0}}}


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def name_of(number: int) -> str:
    return f"chat-{number:05}"


async def in_parallel(count: int, what: str, work: Callable[[int], Awaitable[object]]) -> None:
    """`work` for 0 … count - 1, AT_ONCE at a time; how far it is, is shown now and then."""
    numbers, began = iter(range(count)), time.monotonic()
    spoken = began

    async def worker() -> None:
        nonlocal spoken
        for number in numbers:
            await work(number)
            if (now := time.monotonic()) - spoken > 10:
                spoken = now
                say(f"{what}: {number} of {count}, {now - began:.0f} s so far")

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def until(what: str, condition: Callable[[], Awaitable[str]], every_s: float = 0.5) -> float:
    """Seconds until `condition` gives an empty text; the text is what is missing, and is shown now and then."""
    began = spoken = time.monotonic()
    while missing := await condition():
        now = time.monotonic()
        if now - began > LIMIT_S:
            raise ClusterError(f"{what}: after {LIMIT_S} s still {missing}")
        if now - spoken > 10:
            say(f"{what}: {missing}, {now - began:.0f} s so far")
            spoken = now
        await asyncio.sleep(every_s)
    return time.monotonic() - began


async def count(api: KubeApi, kind: Resource, namespace: str) -> int:
    """Objects of a kind, without reading them all."""
    page = await api._call("GET", kind.path(namespace), {"limit": "1"})
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


async def census(api: KubeApi, namespace: str) -> dict[Resource, int]:
    """The children by kind."""
    return {kind: await count(api, kind, namespace) for kind in KINDS}


async def make_endpoints(api: KubeApi, namespace: str, number: int) -> None:
    async def make(i: int) -> None:
        await api.create(resources.ENDPOINTS, namespace, endpoint(name_of(i), namespace, **SPEC))

    await in_parallel(number, "endpoints", make)


async def all_ready(api: KubeApi, namespace: str, what: str) -> list[Json]:
    """The endpoints, once every one is Ready with nothing going on."""
    found: list[Json] = []

    async def missing() -> str:
        found[:] = (await api.list(resources.ENDPOINTS, namespace))["items"]
        busy = sum(not at_rest(item) for item in found)
        return f"{busy} of {len(found)} not at rest" if busy else ""

    await until(what, missing, 1)
    return found


async def one_at_rest(api: KubeApi, name: str) -> None:
    """Once this endpoint is Ready with nothing going on, and what the cluster does for it is done."""

    async def missing() -> str:
        return "" if at_rest(await api.get(resources.ENDPOINTS, WATCHED, name)) else f"{name} not at rest"

    await until("an edit", missing, 0.2)
    await asyncio.sleep(0.5)


def at_rest(item: Json) -> bool:
    """Ready, and what the spec asks for is what serves."""
    status = item.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return (
        status.get("observedGeneration") == item["metadata"]["generation"]
        and conditions.get("Ready") == "True"
        and conditions.get("Reconciling") != "True"
        and status.get("rollout", {}).get("state", "Idle") == "Idle"
    )


async def children_of(api: KubeApi, name: str) -> list[Json]:
    """What the operator makes for one endpoint: its live children, less what the API server added."""
    found = []
    for kind in KINDS:
        for item in (await api.list(kind, WATCHED, f"llmendpoint.io/endpoint={name}"))["items"]:
            kept = {
                key: item["metadata"][key]
                for key in ("name", "labels", "annotations")
                if key in item["metadata"]
            }
            body = {k: v for k, v in item.items() if k not in ("metadata", "status")}
            if kind is resources.SERVICES:
                body["spec"] = {
                    k: v
                    for k, v in body["spec"].items()
                    if not k.startswith("clusterIP") or v in ("None", ["None"])
                }
            found.append({"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": kept})
    return found


async def pods_there(api: KubeApi, namespace: str, number: int) -> None:
    """Wait until the controllers have made a pod for each Deployment, so that they are done with this namespace."""

    async def missing() -> str:
        lacking = number - await count(api, resources.PODS, namespace)
        return f"{lacking} pods missing" if lacking > 0 else ""

    await until("pods of the bare client", missing, 1)
