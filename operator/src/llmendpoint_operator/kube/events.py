"""Writes Kubernetes Events about decisions, for `kubectl describe llmendpoint`. A lost Event stops no
work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from ..core.endpoint.series import Series, SeriesBook
from ..core.endpoint.snapshot import Endpoint
from ..core.endpoint.steps import Event
from ..core.names import MANAGER
from ..core.sentences import fitting
from ..errors import ApiError, Conflict, NotFound
from .client import Json, KubeApi
from .resources import ENDPOINTS, EVENTS, JOBS, Resource

log = structlog.get_logger()

MESSAGE_LIMIT = 1024
"""Characters that the API server accepts in an Event's message."""
MOST_WAITING = 1000
"""Events that may wait to be written; further ones are dropped."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """The object that an Event is about."""

    kind: Resource
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Due:
    subject: _Subject
    series: Series


class EventWriter:
    """Writes Events in the background. A repeated Event increments the count of the existing one."""

    def __init__(self, api: KubeApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._book = SeriesBook()
        self._queue: asyncio.Queue[_Due] = asyncio.Queue(MOST_WAITING)

    def write(self, endpoint: Endpoint, event: Event) -> None:
        """Queue an Event. It is held back if its endpoint has no token left, and dropped if the queue is
        full."""
        self._queue_one(_Subject(ENDPOINTS, endpoint.namespace, endpoint.name, endpoint.uid), event)

    def write_of_job(self, job: Json, event: Event) -> None:
        """Queue an Event about a model's Job, which no endpoint needs to own."""
        metadata = job["metadata"]
        self._queue_one(_Subject(JOBS, metadata["namespace"], metadata["name"], metadata["uid"]), event)

    def _queue_one(self, subject: _Subject, event: Event) -> None:
        series = self._book.say(subject.uid, event, self._clock())
        if series is None:
            where = {subject.kind.kind.lower(): f"{subject.namespace}/{subject.name}"}
            log.info("event held back", **where, reason=event.reason, message=event.message)
            return
        try:
            self._queue.put_nowait(_Due(subject, series))
        except asyncio.QueueFull:
            log.warning("event dropped", reason=event.reason)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            due = await self._queue.get()
            count, due.series.pending = due.series.pending, 0
            if count == 0:
                continue  # an earlier write of the same series has counted it
            try:
                await self._write(due, count)
            except ApiError as error:
                log.warning("event not written", reason=due.series.event.reason, error=str(error))

    async def _write(self, due: _Due, count: int) -> None:
        body = _manifest(due.subject, due.series, count)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._api.create(EVENTS, namespace, body)
        except Conflict:
            await self._count_up(namespace, name, body)

    async def _count_up(self, namespace: str, name: str, body: Json) -> None:
        """Increment the count of the existing Event, which an earlier leader may have written."""
        try:
            there = await self._api.get(EVENTS, namespace, name)
        except NotFound:  # the API server deletes Events after an hour; this one has just expired
            await self._api.create(EVENTS, namespace, body)
            return
        change = {
            "count": int(there.get("count") or 1) + body["count"],
            "lastTimestamp": body["lastTimestamp"],
        }
        await self._api.merge(EVENTS, namespace, name, change)


def _manifest(subject: _Subject, series: Series, count: int) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = series.event
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{subject.name}.{series.suffix}", "namespace": subject.namespace},
        "involvedObject": {
            "apiVersion": subject.kind.api_version,
            "kind": subject.kind.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": fitting(event.message, MESSAGE_LIMIT),
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": count,
    }
