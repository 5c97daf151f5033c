"""Reads the Events of pods that wait for a node or a volume, and of no others.

There is no watch on Events, because a cluster writes thousands a minute. At most one list request runs at a
time, for one pod by its name, with PAUSE_S between requests. Namespaces take turns, and endpoints within a
namespace. So many waiting pods do not increase the API server's load, and one namespace does not delay
another's answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.pods.state import unscheduled_since
from ...core.rollout.prospects import Told, read_events, worth_asking
from ...errors import ApiError
from ...kube.client import KubeApi

log = structlog.get_logger()


PAUSE_S = 0.25
AGAIN_S = 15.0
"""Seconds after which a pod that still waits is asked about again."""
PODS_PER_ENDPOINT = 2
"""Waiting pods of one endpoint wait for the same, so two of them suffice."""


@dataclass(slots=True)
class _Waiting:
    """One endpoint's waiting pods. `asked`: monotonic time of the last question about them."""

    pods: tuple[str, ...]
    asked: float = float("-inf")
    told: dict[str, Told] = field(default_factory=dict)


class PodEvents:
    """The leader's reader of Events. `wake` queues an endpoint when something new is known."""

    def __init__(self, api: KubeApi, wake: Callable[[Key], None]) -> None:
        self._api = api
        self._wake = wake
        self._waiting: dict[Key, _Waiting] = {}
        self._turns: dict[str, float] = {}
        self._news = asyncio.Event()

    def update(self, snapshot: Snapshot) -> None:
        """Ask about the endpoint's waiting pods from now on."""
        endpoint = snapshot.endpoint
        key = (endpoint.namespace, endpoint.name)
        found = [pod for pods in snapshot.pods.values() for pod in pods if worth_asking(pod)]
        found.sort(key=lambda pod: (unscheduled_since(pod) is None, str(pod["metadata"]["name"])))
        names = tuple(str(pod["metadata"]["name"]) for pod in found[:PODS_PER_ENDPOINT])
        if not names or endpoint.deleting:
            self.forget(key)
            return
        waiting = self._waiting.get(key)
        if waiting is None or waiting.pods != names:
            told = {} if waiting is None else waiting.told
            kept = {name: told[name] for name in names if name in told}
            self._waiting[key] = _Waiting(names, told=kept)
            self._news.set()

    def of(self, key: Key) -> Mapping[str, Told]:
        """What is known of the endpoint's waiting pods, by name."""
        waiting = self._waiting.get(key)
        return dict(waiting.told) if waiting is not None else {}

    def forget(self, key: Key) -> None:
        """Drop an endpoint without waiting pods."""
        if self._waiting.pop(key, None) is not None and not any(
            key[0] == other for other, _ in self._waiting
        ):
            self._turns.pop(key[0], None)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            key = self._due()
            if key is None:
                self._news.clear()
                pause = AGAIN_S / 4 if self._waiting else None
                try:
                    await asyncio.wait_for(self._news.wait(), pause)
                except TimeoutError:
                    continue
                continue
            await self._ask(key, self._waiting[key])

    def _due(self) -> Key | None:
        """The endpoint that has waited longest in the namespace that has waited longest."""
        now = time.monotonic()
        due = (key for key, waiting in self._waiting.items() if now - waiting.asked >= AGAIN_S)
        return min(
            due, key=lambda key: (self._turns.get(key[0], 0.0), self._waiting[key].asked), default=None
        )

    async def _ask(self, key: Key, waiting: _Waiting) -> None:
        """Unreadable Events count as none, so that no rollout waits for ever for lack of a permission."""
        waiting.asked = self._turns[key[0]] = time.monotonic()
        told: dict[str, Told] = {}
        for pod in waiting.pods:
            try:
                told[pod] = read_events(await self._api.events_of_pod(key[0], pod))
            except ApiError as error:
                log.warning("events of a pod not read", pod=f"{key[0]}/{pod}", error=str(error))
                told[pod] = Told()
            except Exception:  # any: any user may write Events; unreadable ones count as none
                log.exception("events of a pod not understood", pod=f"{key[0]}/{pod}")
                told[pod] = Told()
            await asyncio.sleep(PAUSE_S)
        if told != waiting.told and self._waiting.get(key) is waiting:
            waiting.told = told
            self._wake(key)
