"""Load and demand as the gateways report them: one stream from each Ready gateway
(docs/contribute/contracts.md, `GET /demand`).

A gateway whose stream is silent counts as unknown, whatever it reported before. Without any gateway the
engines are asked. No decision is made here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.pauses import growing_pause
from ...core.scaling.demand import Demand, Report, combine
from ...errors import Unanswered
from ..gateways import Gateway, Gateways
from ..reports import parse_report
from ..targets import active_targets
from ..wire import Wire
from .first_tokens import FirstTokenTimes
from .loads import EngineLoads

log = structlog.get_logger()

SILENCE_S = 3.0
"""Seconds after which a stream is silent. A gateway sends at least one line a second."""
TICK_S = 0.5
"""Seconds between checks whether engines must be asked."""
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0


class Demands:
    """The leader's streams. `heard(key)` is called for each endpoint with a new report of a gateway."""

    def __init__(self, wire: Wire, gateways: Gateways, heard: Callable[[Key], None]) -> None:
        self._wire = wire
        self._gateways = gateways
        self._heard = heard
        self._loads = EngineLoads(wire)
        self._first_tokens = FirstTokenTimes(wire)
        self._streams: dict[str, _Stream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Number of gateways that report."""
        return sum(stream.tells for stream in self._streams.values())

    def pods_changed(self) -> None:
        """To be called when the cache of gateway pods has changed."""
        self._changed.set()

    def follow(self, snapshot: Snapshot) -> None:
        """Gather the demand of this endpoint's replicas from now on."""
        endpoint = snapshot.endpoint
        if not endpoint.spec or not endpoint.spec.autoscaling:
            return
        key, rules = (endpoint.namespace, endpoint.name), endpoint.spec.autoscaling
        targets = active_targets(snapshot)
        self._loads.follow(key, targets, rules.polling_interval)
        if rules.signals is not None and rules.signals.ttft is not None:
            self._first_tokens.follow(key, targets, rules.polling_interval)
        else:
            self._first_tokens.forget(key)

    def forget(self, key: Key) -> None:
        """Stop gathering the demand of this endpoint."""
        self._loads.forget(key)
        self._first_tokens.forget(key)

    def of(self, key: Key) -> Demand | None:
        """What is known of one endpoint now; None if its load is unknown."""
        told = self._told(key)
        return replace(told, first_tokens=self._first_tokens.of(key)) if told else None

    def _told(self, key: Key) -> Demand | None:
        if self._gateways.absent:
            told = combine(self._loads.reports(key))
            return replace(told, held=False) if told else None
        name = "/".join(key)
        streams = {gateway.name: self._streams.get(gateway.uid) for gateway in self._gateways.ready()}
        return combine({gateway: s.report(name) if s else None for gateway, s in streams.items()})

    async def run(self) -> None:
        """Keep the streams until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_streams())
            group.create_task(self._ask_engines())
            group.create_task(self._first_tokens.run())

    async def _ask_engines(self) -> None:
        try:
            while True:
                await asyncio.sleep(TICK_S)
                if self._gateways.absent:
                    self._loads.ask_due()
        finally:
            self._loads.stop()

    async def _keep_streams(self) -> None:
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
        """Read one gateway's stream, and reopen it whenever it ends."""
        stream, failures, said = self._streams[gateway.uid], 0, ""
        while True:
            try:
                url, headers = f"{gateway.url}/demand", self._gateways.headers()
                async for line in self._wire.lines("demand", url, SILENCE_S, headers):
                    for name in stream.take(json.loads(line), time.monotonic()):
                        self._hear(_key(name))
                    failures, said = 0, ""
                error = "the stream ended"
            except Unanswered as problem:
                error = str(problem)
            except Exception as problem:  # any: whatever a gateway sends, only its own stream ends
                error = f"a line is not as expected: {problem!r}"
            stream.lost()
            if error != said:
                log.warning("gateway tells no demand", gateway=gateway.name, error=error)
                said = error
            failures += 1
            await asyncio.sleep(growing_pause(FIRST_RETRY_S, failures, LAST_RETRY_S))

    def _hear(self, key: Key) -> None:
        """Call `heard`. An error in it is not the gateway's fault, and does not end the stream."""
        try:
            self._heard(key)
        except Exception:  # any: the callback failed for this endpoint only; later reports reach it again
            log.exception("what a gateway told could not be used", endpoint="/".join(key))


class _Stream:
    """One gateway's reports since its stream was opened."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Report] = {}
        self._heard_at = -SILENCE_S
        self._complete = False

    @property
    def tells(self) -> bool:
        """Whether the gateway has sent its complete state, and something recently."""
        return self._complete and time.monotonic() - self._heard_at < SILENCE_S

    def report(self, name: str) -> Report | None:
        """The report on one endpoint; None if the gateway is silent or does not know the endpoint."""
        return self._endpoints.get(name) if self.tells else None

    def take(self, line: Mapping[str, Any], now: float) -> list[str]:
        """Process a line: the first has the complete state, later ones the changes. Returns its endpoints."""
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
        """The stream has ended. The next one begins with the complete state."""
        self._complete = False


def _key(name: str) -> Key:
    namespace, _, endpoint = name.partition("/")
    return namespace, endpoint
