"""Kubernetes Events about decisions: `kubectl describe llmendpoint` shows them. Losing one never stops the work."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

import structlog

from ..core.names import MANAGER
from ..core.plan import Event
from ..core.snapshot import Endpoint
from ..errors import ApiError
from .client import Json, KubeApi
from .resources import ENDPOINTS, EVENTS

log = structlog.get_logger()


class EventWriter:
    """Writes in the background, at most `capacity` waiting."""

    def __init__(self, api: KubeApi, capacity: int = 1000) -> None:
        self._api = api
        self._queue: asyncio.Queue[Json] = asyncio.Queue(capacity)

    def write(self, endpoint: Endpoint, event: Event) -> None:
        """Queue one; dropped when too many wait."""
        try:
            self._queue.put_nowait(_manifest(endpoint, event))
        except asyncio.QueueFull:
            log.warning("event dropped", reason=event.reason)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            body = await self._queue.get()
            try:
                await self._api.create(EVENTS, body["metadata"]["namespace"], body)
            except ApiError as error:
                log.warning("event not written", reason=body["reason"], error=str(error))


def _manifest(endpoint: Endpoint, event: Event) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{endpoint.name}.{uuid.uuid4().hex[:16]}", "namespace": endpoint.namespace},
        "involvedObject": {
            "apiVersion": ENDPOINTS.api_version,
            "kind": ENDPOINTS.kind,
            "namespace": endpoint.namespace,
            "name": endpoint.name,
            "uid": endpoint.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
