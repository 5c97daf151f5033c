"""What every gateway tells of load and demand: one stream from each Ready one (docs/contracts.md, `GET /demand`).

A gateway whose stream is silent tells nothing, whatever it said before. It decides nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from ..core.autoscaling.demand import Demand, Load, Reading, Report, combine
from ..errors import Unanswered
from .gateways import Gateway, Gateways
from .wanted import Key
from .wire import Wire

log = structlog.get_logger()

SILENCE_S = 3.0
"""A gateway sends a line every second at least."""
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0


class Demands:
    """The streams of one leader. `heard(key)` is called for each endpoint that a gateway told something new of."""

    def __init__(self, wire: Wire, gateways: Gateways, heard: Callable[[Key], None]) -> None:
        self._wire = wire
        self._gateways = gateways
        self._heard = heard
        self._streams: dict[str, _Stream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Gateways that tell."""
        return sum(stream.tells for stream in self._streams.values())

    def pods_changed(self) -> None:
        """The cache of gateway pods has changed."""
        self._changed.set()

    def of(self, key: Key) -> Demand | None:
        """What is known of one endpoint now; None when no gateway tells anything of it."""
        name = "/".join(key)
        streams = {gateway.name: self._streams.get(gateway.uid) for gateway in self._gateways.ready()}
        return combine({gateway: s.report(name) if s else None for gateway, s in streams.items()})

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._keep_tasks({gateway.uid: gateway for gateway in self._gateways.ready()})
                await self._changed.wait()
        finally:
            self._keep_tasks({})

    def _keep_tasks(self, wanted: Mapping[str, Gateway]) -> None:
        for uid in self._tasks.keys() - wanted.keys():
            self._tasks.pop(uid).cancel()
            del self._streams[uid]
        for uid in wanted.keys() - self._tasks.keys():
            self._streams[uid] = _Stream()
            self._tasks[uid] = asyncio.create_task(self._listen(wanted[uid]), name=f"demand {uid}")

    async def _listen(self, gateway: Gateway) -> None:
        """One gateway's stream, opened again whenever it ends."""
        stream, retry, said = self._streams[gateway.uid], FIRST_RETRY_S, ""
        while True:
            try:
                async for line in self._wire.lines("demand", f"{gateway.url}/demand", SILENCE_S):
                    for name in stream.take(json.loads(line), time.monotonic()):
                        self._heard(_key(name))
                    retry, said = FIRST_RETRY_S, ""
                error = "the stream ended"
            except (Unanswered, ValueError, KeyError, TypeError, AttributeError) as problem:
                error = str(problem) or repr(problem)
            stream.lost()
            if error != said:
                log.warning("gateway tells no demand", gateway=gateway.name, error=error)
                said = error
            await asyncio.sleep(retry)
            retry = min(retry * 2, LAST_RETRY_S)


class _Stream:
    """What one gateway has told since its stream was opened."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Report] = {}
        self._heard_at = -SILENCE_S
        self._complete = False

    @property
    def tells(self) -> bool:
        """Whether it has told everything once, and lately something."""
        return self._complete and time.monotonic() - self._heard_at < SILENCE_S

    def report(self, name: str) -> Report | None:
        """Of one endpoint; None when it tells nothing, or does not know the endpoint."""
        return self._endpoints.get(name) if self.tells else None

    def take(self, line: Mapping[str, Any], now: float) -> list[str]:
        """Take over a line: the first has everything, later ones what changed. The endpoints that it is about."""
        if "instance" in line:
            self._endpoints.clear()
            self._complete = True
        found = line.get("endpoints") or {}
        for name, told in found.items():
            if told is None:
                self._endpoints.pop(name, None)
            else:
                self._endpoints[name] = parse_report(told, now)
        self._heard_at = now
        return list(found)

    def lost(self) -> None:
        """The stream has ended; the next begins with everything."""
        self._complete = False


def parse_report(told: Mapping[str, Any], now: float) -> Report:
    """One endpoint as a gateway writes it at `now`. A load that it does not know is none, never zeros."""
    replicas = told.get("replicas") or {}
    return Report(
        waiting=int(told["waiting"]),
        replicas={
            str(pod): Reading(int(found["in_flight"]), _load(found.get("load"), now))
            for pod, found in replicas.items()
        },
    )


def _load(told: Mapping[str, Any] | None, now: float) -> Load | None:
    if told is None:
        return None
    return Load(
        running=int(told["running"]),
        waiting=int(told["waiting"]),
        kv_usage=float(told["kv_usage"]),
        max_num_seqs=int(told["max_num_seqs"]),
        read_at=now - float(told["age"]),
    )


def _key(name: str) -> Key:
    namespace, _, endpoint = name.partition("/")
    return namespace, endpoint
