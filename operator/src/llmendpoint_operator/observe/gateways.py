"""Which assignment each gateway follows. Its `/state` is asked while a decision waits for an acknowledgement,
otherwise every MEET_S.

Each Ready gateway has a task of its own, so that one that hangs delays no other; one response covers all
endpoints. A gateway that is behind another one is told so (`POST /epoch`), so that it can become unready.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ..core.endpoint.reported import LARGEST
from ..core.names import Key
from ..core.pods.state import is_finished, is_ready
from ..core.rollout.evidence import GatewayView
from ..errors import Unanswered
from ..kube.store import Informer
from .counters import Counters, parse_counters
from .targets import base_url
from .wire import NO_HEADERS, Headers, Wire

log = structlog.get_logger()

GATEWAY_SELECTOR = "app.kubernetes.io/name=llmendpoint-gateway,app.kubernetes.io/component=gateway"

POLL_S = 0.2
SLOW_POLL_S = 2.0
FRESH_S = 10.0
"""How long a new assignment is asked for every POLL_S; after that every SLOW_POLL_S."""

STATE_TIMEOUT_S = 1.0

MEET_S = 240.0
"""Longest time between questions to a gateway. A gateway must have seen the operator's present token before
it is cut off from the API server, because only that can review one."""

LOST_S = 60.0
"""If no gateway is Ready for this long, old pods are no longer kept for the gateways. Restarting gateways
need seconds; other faults do not pass with time. A gateway that comes back sends to the pods that exist."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Ready gateway pod and the base URL of its picker."""

    name: str
    uid: str
    url: str


@dataclass(frozen=True, slots=True)
class _Reply:
    """A gateway's answer by endpoint, empty if there was none. `asked`: monotonic time of the question."""

    asked: float
    epochs: Mapping[str, int | None] = field(default_factory=dict)
    in_flight: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def view(self, gateway: str, endpoint: str) -> GatewayView:
        """The gateway's view of one endpoint."""
        return GatewayView(gateway, self.epochs.get(endpoint), self.in_flight.get(endpoint, {}))


@dataclass(slots=True)
class _Followed:
    """An assignment that a decision waits for."""

    epoch: int
    since: float
    told: tuple[object, ...] = ()


class Gateways:
    """The gateways. `pods`: the cache of their pods; until it is filled nothing is known. `token`: file with
    the token by which gateways recognise the operator."""

    def __init__(
        self,
        wire: Wire,
        pods: Informer,
        port: int,
        wake: Callable[[Key], None],
        token: Path | None = None,
    ) -> None:
        self._wire = wire
        self._token = token
        self._pods = pods
        self._port = port
        self._wake = wake
        self._followed: dict[Key, _Followed] = {}
        self._replies: dict[str, _Reply] = {}
        self._silent: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._needed = asyncio.Event()
        self._none_ready_since: float | None = None

    def ready(self) -> tuple[Gateway, ...]:
        """The Ready gateways."""
        return tuple(self._ready())

    def headers(self) -> Headers:
        """Headers for a request to a gateway. The token is read each time: its file is renewed every hour."""
        try:
            token = self._token.read_text().strip() if self._token else ""
        except OSError as error:
            log.warning("no token for the gateways", error=str(error))
            token = ""
        return {"Authorization": f"Bearer {token}"} if token else NO_HEADERS

    @property
    def exist(self) -> bool:
        """Whether there is any gateway, Ready or not."""
        return any(not is_finished(pod) for pod in self._pods.store)

    @property
    def absent(self) -> bool:
        """Whether it is known that there is no gateway."""
        return self._pods.synced.is_set() and not self.exist

    @property
    def lost(self) -> bool:
        """Whether there are gateways, and none has been Ready for LOST_S."""
        since = self._none_ready_since
        return since is not None and time.monotonic() - since >= LOST_S

    def pods_changed(self) -> None:
        """To be called when the cache of gateway pods has changed."""
        self._note_ready()
        self._changed.set()

    def _note_ready(self) -> None:
        if not self._pods.synced.is_set() or not self.exist or any(self._ready()):
            self._none_ready_since = None
        elif self._none_ready_since is None:
            self._none_ready_since = time.monotonic()

    def follow(self, key: Key, epoch: int) -> None:
        """Start to find out which gateways follow this assignment."""
        followed = self._followed.get(key)
        if followed is None or followed.epoch != epoch:
            self._followed[key] = _Followed(epoch, time.monotonic())
            self._followed[key].told = self._news(key)
        if not self._settled(key):
            self._needed.set()

    def forget(self, key: Key) -> None:
        """Stop asking about this endpoint."""
        self._followed.pop(key, None)

    def views(self, key: Key) -> tuple[tuple[GatewayView, ...], bool]:
        """What each Ready gateway follows, and whether all were asked since this assignment became the wanted
        one. While gateways exist but none is Ready, that is False: a restarted gateway follows what it
        followed before."""
        followed = self._followed.get(key)
        if followed is None or not self._pods.synced.is_set():
            return (), False
        replies = [(gateway, self._replies.get(gateway.uid)) for gateway in self._ready()]
        asked = all(reply is not None and reply.asked >= followed.since for _, reply in replies)
        known = asked and (bool(replies) or not self.exist)
        name = "/".join(key)
        views = (reply.view(g.name, name) if reply else GatewayView(g.name, None) for g, reply in replies)
        return tuple(views), known

    async def counters(self, gateway: Gateway, key: Key) -> Counters:
        """Of one endpoint on one gateway. Raises Unanswered."""
        url = f"{gateway.url}/revisions/{'/'.join(key)}"
        return parse_counters(await self._wire.json("revisions", url, STATE_TIMEOUT_S))

    async def run(self) -> None:
        """Keep a task for each Ready gateway until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._note_ready()
                self._keep_tasks({gateway.uid: gateway for gateway in self._ready()})
                self._tell()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self._patience())
        finally:
            self._keep_tasks({})

    def _patience(self) -> float | None:
        """Seconds until the gateways count as lost, which no watch event reports; None if they do not."""
        since = self._none_ready_since
        return None if since is None or self.lost else max(0.0, since + LOST_S - time.monotonic())

    def _ready(self) -> Iterator[Gateway]:
        for pod in sorted(self._pods.store, key=lambda pod: str(pod["metadata"]["name"])):
            address = pod.get("status", {}).get("podIP")
            if address and is_ready(pod):
                metadata = pod["metadata"]
                yield Gateway(metadata["name"], metadata.get("uid", ""), base_url(address, self._port))

    def _keep_tasks(self, wanted: Mapping[str, Gateway]) -> None:
        for uid in self._tasks.keys() - wanted.keys():
            self._tasks.pop(uid).cancel()
            self._replies.pop(uid, None)
            self._silent.discard(uid)
        for uid in wanted.keys() - self._tasks.keys():
            self._tasks[uid] = asyncio.create_task(self._poll(wanted[uid]), name=f"gateway {uid}")
        if any(not self._settled(key) for key in self._followed):
            self._needed.set()

    async def _poll(self, gateway: Gateway) -> None:
        asked = nudged = -SLOW_POLL_S
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._needed.wait(), MEET_S)
            now = time.monotonic()
            if now - asked >= self._interval(now):
                asked = now
                answered = await self._ask(gateway, now)
                if answered and now - nudged >= SLOW_POLL_S and await self._nudge(gateway):
                    nudged = now
            if all(self._settled(key) for key in self._followed):
                self._needed.clear()
            else:
                await asyncio.sleep(POLL_S)

    async def _ask(self, gateway: Gateway, now: float) -> bool:
        reply, answered = _Reply(now), True
        try:
            page = await self._wire.json(
                "state", f"{gateway.url}/state", STATE_TIMEOUT_S, headers=self.headers()
            )
            reply = _parse(now, page["endpoints"])
        except (Unanswered, KeyError, TypeError, ValueError, AttributeError) as error:
            if gateway.uid not in self._silent:
                log.warning("gateway does not answer", gateway=gateway.name, error=str(error))
            answered = False
        (self._silent.discard if answered else self._silent.add)(gateway.uid)
        self._replies[gateway.uid] = reply
        self._tell()
        return answered

    async def _nudge(self, gateway: Gateway) -> bool:
        """Tell a gateway of later epochs that others follow. Returns whether there was any."""
        mine = self._replies[gateway.uid].epochs
        ahead: dict[str, int] = {}
        for key in self._followed:
            name = "/".join(key)
            best = max((reply.epochs.get(name) or 0 for reply in self._replies.values()), default=0)
            if best > (mine.get(name) or 0):
                ahead[name] = best
        if ahead:
            try:
                await self._wire.text("epoch", f"{gateway.url}/epoch", STATE_TIMEOUT_S, ahead, self.headers())
            except Unanswered as error:
                log.warning("gateway was not told of later epochs", gateway=gateway.name, error=str(error))
        return bool(ahead)

    def _tell(self) -> None:
        """Wake the endpoints for which something is new."""
        for key, followed in self._followed.items():
            news = self._news(key)
            if news != followed.told:
                followed.told = news
                self._wake(key)

    def _news(self, key: Key) -> tuple[object, ...]:
        """Which gateway follows which epoch. Requests in flight change all the time and are left out."""
        views, known = self.views(key)
        return known, self.lost, *((view.pod, view.epoch) for view in views)

    def _settled(self, key: Key) -> bool:
        views, known = self.views(key)
        return known and all((view.epoch or 0) >= self._followed[key].epoch for view in views)

    def _interval(self, now: float) -> float:
        waiting = [followed for key, followed in self._followed.items() if not self._settled(key)]
        return POLL_S if any(now - followed.since < FRESH_S for followed in waiting) else SLOW_POLL_S


def _parse(asked: float, endpoints: Mapping[str, Any]) -> _Reply:
    epochs, in_flight = {}, {}
    for name, found in endpoints.items():
        epochs[name] = _parse_epoch(found.get("epoch"))
        in_flight[name] = {str(r["pod"]): int(r["in_flight"]) for r in found.get("replicas") or ()}
    return _Reply(asked, epochs, in_flight)


def _parse_epoch(told: Any) -> int | None:
    """The epoch; None for one that no operator writes, so the gateway does not follow this operator."""
    epoch = int(told) if told is not None else -1
    return epoch if 0 <= epoch < LARGEST else None
