"""The aggregated discovery service: sends Envoy what each stream's state machine says, and feeds Envoy's answers back
to it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import grpc
import orjson
import structlog
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    Resource,
)
from google.protobuf.json_format import MessageToDict

from llmendpoint_gateway.core.envoy.front import make_front, read_front
from llmendpoint_gateway.core.envoy.resources import make_cluster
from llmendpoint_gateway.core.envoy.snapshot import Hosts, Snapshot
from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS, Request, Response, Subscription
from llmendpoint_gateway.serve.envoy.protos import Any as AnyMessage
from llmendpoint_gateway.serve.envoy.protos import pack, pack_endpoints

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Envoy:
    """One stream. `front`: Envoy's listeners and routes by type and name; they depend on where it runs."""

    front: Mapping[str, Mapping[str, Resource]]
    queue: asyncio.Queue[DeltaDiscoveryResponse] = field(default_factory=asyncio.Queue)


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]  # generated without types
    """Holds the snapshot, and what the latest Envoy has acknowledged of it. `nacks` counts refusals. `started`: an Envoy has
    been told everything since this picker started, and has accepted what it serves with. `with_keys`: the picker asks for API keys, so
    Envoy must do, too."""

    def __init__(self, with_keys: bool = False) -> None:
        self._with_keys = with_keys
        self._news: set[str] = set()
        self._answered = asyncio.Event()
        self.nacks = 0
        self.started = False
        self.nack: str | None = None
        self.acknowledged_generation = 0
        self._snapshot = Snapshot(0)
        self._published = asyncio.Event()
        self._versions: dict[str, dict[str, Hashable]] = {CLUSTER: {}, ENDPOINTS: {}}
        self._connected = 0
        self._streams: dict[Subscription, _Envoy] = {}
        self._latest: Subscription | None = None

    @property
    def connected(self) -> bool:
        return self._connected > 0

    async def acknowledged(self) -> Collection[str]:
        """Wait until Envoy has answered. Returns the clusters whose acknowledged endpoints changed since the last call."""
        await self._answered.wait()
        self._answered.clear()
        news, self._news = self._news, set()
        return news

    def publish(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        clusters, endpoints = self._versions[CLUSTER], self._versions[ENDPOINTS]
        for name in snapshot.changed:
            if name in snapshot.clusters:
                clusters[name], endpoints[name] = cluster_version(), snapshot.clusters[name]
            else:
                clusters.pop(name, None)
                endpoints.pop(name, None)
        self._published.set()
        for stream in list(self._streams):
            self._send(stream, stream.publish(snapshot.changed))
            self._note_acknowledged(stream)

    def addresses(self, cluster: str) -> frozenset[str]:
        """The addresses that Envoy has acknowledged for the cluster. After a disconnect they stay, because Envoy keeps
        what it has."""
        hosts: Any = self._latest.acknowledged(ENDPOINTS).get(cluster) if self._latest else None
        # A text is the version of hosts that an earlier picker sent.
        return frozenset(host.address for host in hosts) if isinstance(hosts, tuple) else frozenset()

    async def DeltaAggregatedResources(  # noqa: N802 (gRPC's name)
        self, requests: AsyncIterator[DeltaDiscoveryRequest], context: grpc.aio.ServicerContext
    ) -> None:
        self._connected += 1
        log.info("envoy connected", streams=self._connected)
        try:
            # An answer before there is a state would remove what Envoy holds.
            await self._published.wait()
            await self._serve(requests, context)
        finally:
            self._connected -= 1
            log.info("envoy disconnected", streams=self._connected)

    async def _serve(
        self, requests: AsyncIterator[DeltaDiscoveryRequest], context: grpc.aio.ServicerContext
    ) -> None:
        first = await anext(requests, None)
        if first is None:
            return
        envoy = _Envoy(_front(first.node, self._with_keys))
        of_front = {kind: {n: r.version for n, r in found.items()} for kind, found in envoy.front.items()}
        stream = Subscription({**self._versions, **of_front})
        self._streams[stream] = envoy
        writer = asyncio.create_task(_write(envoy.queue, context))
        try:
            self._receive(stream, first)
            async for request in requests:
                self._receive(stream, request)
        finally:
            writer.cancel()
            del self._streams[stream]

    def _receive(self, stream: Subscription, message: DeltaDiscoveryRequest) -> None:
        error = message.error_detail.message if message.HasField("error_detail") else None
        if error is not None:
            self.nacks += 1
            log.error("envoy refused a snapshot", type=message.type_url.rpartition(".")[2], message=error)
        request = Request(
            message.type_url,
            frozenset(message.resource_names_subscribe),
            frozenset(message.resource_names_unsubscribe),
            self._held(message),
            message.response_nonce,
            error,
        )
        self._send(stream, stream.receive(request))
        self.nack = stream.nack
        self._note_acknowledged(stream)
        self._answered.set()

    def _held(self, message: DeltaDiscoveryRequest) -> dict[str, Hashable]:
        """What Envoy has from an earlier stream: the hosts, or the text of the version if an earlier picker sent it."""
        if message.type_url != ENDPOINTS:
            return dict(message.initial_resource_versions)
        acknowledged: Any = self._latest.acknowledged(ENDPOINTS) if self._latest else {}
        held: dict[str, Hashable] = {}
        for name, text in message.initial_resource_versions.items():
            known = (self._snapshot.clusters.get(name), acknowledged.get(name))
            found = (hosts for hosts in known if isinstance(hosts, tuple) and hosts_version(hosts) == text)
            held[name] = next(found, text)
        return held

    def _note_acknowledged(self, stream: Subscription) -> None:
        whole = stream.holds()
        if whole:
            self.acknowledged_generation = self._snapshot.generation
        decided = whole or stream.decided()
        self.started = self.started or decided
        # Until Envoy has decided about everything on the new stream, it has what it acknowledged on the one before.
        if self._latest is not stream and (decided or self._latest is None):
            self._news.update(self._latest.acknowledged(ENDPOINTS) if self._latest else ())
            self._news.update(stream.acknowledged(ENDPOINTS))
            self._latest = stream
        self._news |= stream.take_changed()

    def _send(self, stream: Subscription, responses: list[Response]) -> None:
        envoy = self._streams[stream]
        for response in responses:
            envoy.queue.put_nowait(
                DeltaDiscoveryResponse(
                    type_url=response.type_url,
                    nonce=response.nonce,
                    system_version_info=str(self._snapshot.generation),
                    resources=[self._resource(envoy, response.type_url, name) for name in response.names],
                    removed_resources=response.removed,
                )
            )

    def _resource(self, envoy: _Envoy, type_url: str, name: str) -> Resource:
        if type_url in envoy.front:
            return envoy.front[type_url][name]
        if type_url == CLUSTER:
            return Resource(name=name, version=cluster_version(), resource=_cluster(name))
        hosts = self._snapshot.clusters[name]
        return Resource(name=name, version=hosts_version(hosts), resource=pack_endpoints(name, hosts))


def _front(node: Node, with_keys: bool) -> dict[str, dict[str, Resource]]:
    """By type and name, for the Envoy that says this of itself."""
    front = read_front(MessageToDict(node.metadata))
    if front is None:
        return {}
    if front.with_keys is not with_keys:
        log.error("nothing is served: picker and envoy have different values of --authentication")
        return {}
    return {
        kind: {
            name: Resource(name=name, version=_digest(orjson.dumps(body)), resource=pack(kind, body))
            for name, body in found.items()
        }
        for kind, found in make_front(front).items()
    }


@cache
def cluster_version() -> str:
    """Of every cluster: they differ in their names alone. A picker of another version may make other clusters."""
    return _digest(orjson.dumps(make_cluster("")))


def hosts_version(hosts: Hosts) -> str:
    """The same for every picker that makes the same clusters. A changed cluster has new endpoints (core/envoy/xds.py)."""
    lines = "".join(f"{host.address} {host.health.value}\n" for host in hosts)
    return _digest(f"{cluster_version()}\n{lines}".encode())


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


@lru_cache(maxsize=4096)
def _cluster(name: str) -> AnyMessage:
    return pack(CLUSTER, make_cluster(name))


async def _write(queue: asyncio.Queue[DeltaDiscoveryResponse], context: grpc.aio.ServicerContext) -> None:
    while True:
        await context.write(await queue.get())
