"""The aggregated discovery service: sends Envoy what each stream's state machine says, and feeds Envoy's answers back
to it."""

import asyncio
from collections.abc import AsyncIterator, Collection
from functools import lru_cache
from typing import Any

import grpc
import structlog
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from llmendpoint_gateway.core.envoy.resources import make_cluster, make_endpoints
from llmendpoint_gateway.core.envoy.snapshot import Snapshot
from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS, Request, Response, Subscription, Versions
from llmendpoint_gateway.serve.envoy.protos import Any as AnyMessage
from llmendpoint_gateway.serve.envoy.protos import pack

log = structlog.get_logger()


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]  # generated without types
    """Holds the snapshot, and what the latest Envoy has acknowledged of it. `nacks` counts refusals."""

    def __init__(self) -> None:
        self._news: set[str] = set()
        self._answered = asyncio.Event()
        self.nacks = 0
        self.nack: str | None = None
        self.acknowledged_generation = 0
        self._snapshot: Snapshot | None = None
        self._versions: Versions = versions_of(Snapshot(0))
        self._streams: dict[Subscription, asyncio.Queue[DiscoveryResponse]] = {}
        self._latest: Subscription | None = None

    @property
    def connected(self) -> bool:
        return bool(self._streams)

    async def acknowledged(self) -> Collection[str]:
        """Wait until Envoy has answered. Returns the clusters whose acknowledged endpoints changed since the last call."""
        await self._answered.wait()
        self._answered.clear()
        news, self._news = self._news, set()
        return news

    def publish(self, snapshot: Snapshot) -> None:
        self._snapshot, self._versions = snapshot, versions_of(snapshot)
        for stream in list(self._streams):
            self._send(stream, stream.publish(self._versions))
            self._note_acknowledged(stream)

    def addresses(self, cluster: str) -> frozenset[str]:
        """The addresses that Envoy has acknowledged for the cluster. After a disconnect they stay, because Envoy keeps
        what it has."""
        hosts: Any = self._latest.acknowledged(ENDPOINTS).get(cluster, ()) if self._latest else ()
        return frozenset(host.address for host in hosts)

    async def StreamAggregatedResources(  # noqa: N802 (gRPC's name)
        self, requests: AsyncIterator[DiscoveryRequest], context: grpc.aio.ServicerContext
    ) -> None:
        stream = Subscription()
        if self._snapshot is not None:
            stream.publish(self._versions)
        queue = self._streams[stream] = asyncio.Queue()
        writer = asyncio.create_task(_write(queue, context))
        log.info("envoy connected", streams=len(self._streams))
        try:
            async for request in requests:
                self._receive(stream, request)
        finally:
            writer.cancel()
            del self._streams[stream]
            log.info("envoy disconnected", streams=len(self._streams))

    def _receive(self, stream: Subscription, message: DiscoveryRequest) -> None:
        error = message.error_detail.message if message.HasField("error_detail") else None
        request = Request(message.type_url, frozenset(message.resource_names), message.response_nonce, error)
        if error is not None:
            self.nacks += 1
            log.error("envoy refused a snapshot", type=message.type_url.rpartition(".")[2], message=error)
        self._send(stream, stream.receive(request))
        if not request.nonce:
            return
        self.nack = stream.nack
        self._note_acknowledged(stream)
        self._answered.set()

    def _note_acknowledged(self, stream: Subscription) -> None:
        whole = False
        if self._snapshot is not None and stream.holds(self._versions):
            whole, self.acknowledged_generation = True, self._snapshot.generation
        # Until the new stream has acknowledged everything, Envoy has what the stream before it acknowledged.
        if self._latest is not stream and (whole or self._latest is None):
            self._news.update(self._latest.acknowledged(ENDPOINTS) if self._latest else ())
            self._news.update(stream.acknowledged(ENDPOINTS))
            self._latest = stream
        self._news |= stream.take_changed()

    def _send(self, stream: Subscription, responses: list[Response]) -> None:
        assert self._snapshot is not None or not responses
        for response in responses:
            assert self._snapshot is not None
            self._streams[stream].put_nowait(
                DiscoveryResponse(
                    type_url=response.type_url,
                    nonce=response.nonce,
                    version_info=str(self._snapshot.generation),
                    resources=[_resource(response.type_url, name, self._snapshot) for name in response.names],
                )
            )


def versions_of(snapshot: Snapshot) -> Versions:
    """A cluster never changes under its name. Endpoints are their own version."""
    return {CLUSTER: dict.fromkeys(snapshot.clusters, ""), ENDPOINTS: snapshot.clusters}


def _resource(type_url: str, name: str, snapshot: Snapshot) -> AnyMessage:
    if type_url == CLUSTER:
        return _cluster(name)
    return pack(ENDPOINTS, make_endpoints(name, snapshot.clusters[name]))


@lru_cache(maxsize=4096)
def _cluster(name: str) -> AnyMessage:
    return pack(CLUSTER, make_cluster(name))


async def _write(queue: asyncio.Queue[DiscoveryResponse], context: grpc.aio.ServicerContext) -> None:
    while True:
        await context.write(await queue.get())
