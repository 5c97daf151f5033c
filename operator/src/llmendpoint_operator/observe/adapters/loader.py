"""Keeps the adapters of each pod as the spec has them: asks the pod, loads, unloads, and tells what came of it.

Each pod has a task of its own, so that a pod that hangs delays no other. A load may be a download of hundreds of MB: slots
bound how many pods load at once, and each namespace has its share.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from ...core.adapters.moves import (
    Load,
    Move,
    PodAdapters,
    due_moves,
    failed,
    next_due,
    said,
    succeeded,
)
from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.sentences import fitting
from ...errors import Unanswered
from ..slots import Slots
from ..wire import Wire
from .pods import Job, jobs_of

log = structlog.get_logger()

AT_ONCE, OF_A_NAMESPACE = 32, 8
ASK_AGAIN_S = 60.0
"""How often a pod at rest is asked, so that a change that somebody made in it is undone."""
RETRY_S = 5.0
READ_LIMIT_S, LOAD_LIMIT_S, UNLOAD_LIMIT_S = 5.0, 300.0, 30.0
MOST_LISTED, LONGEST_TEXT = 256, 1024
NOT_FINAL = frozenset({408, 409, 425, 429})
"""Refusals that pass: the engine is busy, or has no room until it let another adapter go."""
MESSAGE_LIMIT = 400


class _Pod:
    """A pod and the task that keeps its adapters."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.state = PodAdapters()
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class AdapterLoader:
    """`wake` is called with an endpoint when one of its pods has something new. `clock`: seconds, monotonic."""

    def __init__(
        self, wire: Wire, wake: Callable[[Key], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wire, self._wake, self._clock = wire, wake, clock
        self._slots = Slots(AT_ONCE, OF_A_NAMESPACE)
        self._pods: dict[Key, dict[str, _Pod]] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Follow the endpoint's pods and what they are to have."""
        key = (snapshot.endpoint.namespace, snapshot.endpoint.name)
        jobs = {job.name: job for job in jobs_of(snapshot)}
        pods = self._pods.setdefault(key, {})
        for name in [name for name, pod in pods.items() if name not in jobs or pod.job.run != jobs[name].run]:
            _stop(pods.pop(name))
        for name, job in jobs.items():
            pod = pods.get(name)
            if pod is None:
                pod = pods[name] = _Pod(job)
                pod.task = asyncio.create_task(self._keep(key, pod), name="adapters")
            elif pod.job != job:
                pod.job = job
                pod.changed.set()
        if not pods:
            del self._pods[key]

    def of(self, key: Key) -> Mapping[str, PodAdapters]:
        """What the endpoint's pods have, by pod."""
        return {name: pod.state for name, pod in self._pods.get(key, {}).items()}

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        for pod in self._pods.pop(key, {}).values():
            _stop(pod)

    def stop(self) -> None:
        """End all tasks."""
        for key in [*self._pods]:
            self.forget(key)

    async def run(self) -> None:
        """Nothing but an end: when the leader stops, so do the pods' tasks."""
        try:
            await asyncio.Event().wait()
        finally:
            self.stop()

    async def _keep(self, key: Key, pod: _Pod) -> None:
        while True:
            pod.changed.clear()
            try:
                async with self._slots.held(key[0]):
                    await self._turn(key, pod)
                pause = self._pause(pod)
            except Unanswered:
                pause = RETRY_S
            except Exception:  # any: an engine may answer anything; only this pod waits
                log.exception(
                    "a pod's adapters are left as they are", endpoint="/".join(key), pod=pod.job.name
                )
                pause = ASK_AGAIN_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await pod.changed.wait()

    def _pause(self, pod: _Pod) -> float:
        due = next_due(pod.job.wanted, pod.state)
        return ASK_AGAIN_S if due is None else min(max(due - self._clock(), 0.1), ASK_AGAIN_S)

    async def _turn(self, key: Key, pod: _Pod) -> None:
        """Ask the pod, then do all that is due, one after another. A change of the spec in between counts at once."""
        page = await self._wire.json("adapter", f"{pod.job.url}/v1/models", READ_LIMIT_S)
        self._know(key, pod, said(pod.state, parse_held(page), pod.job.wanted))
        while moves := due_moves(pod.job.wanted, pod.state, self._clock()):
            await self._do(key, pod, moves[0])

    async def _do(self, key: Key, pod: _Pod, move: Move) -> None:
        path, body, limit = _request(move)
        try:
            await self._wire.text("adapter", f"{pod.job.url}{path}", limit, body)
        except Unanswered as error:
            if not (error.status == 404 and not isinstance(move, Load)):  # otherwise it is gone already
                refused = 400 <= error.status < 500 and error.status not in NOT_FINAL
                message = fitting(str(error), MESSAGE_LIMIT)
                log.warning(
                    "an adapter failed", endpoint="/".join(key), pod=pod.job.name, move=body, error=message
                )
                self._know(key, pod, failed(pod.state, move, message, self._clock(), refused=refused))
                return
        self._know(key, pod, succeeded(pod.state, move))

    def _know(self, key: Key, pod: _Pod, state: PodAdapters) -> None:
        if state != pod.state:
            pod.state = state
            self._wake(key)


def parse_held(page: Any) -> dict[str, str]:
    """Source by name of the adapters on `/v1/models`; the model itself has no parent. Raises Unanswered where it is none."""
    try:
        listed = [item for item in page["data"][:MOST_LISTED] if item.get("parent")]
        found = {str(item["id"]): str(item.get("root") or "") for item in listed}
    except (KeyError, TypeError, AttributeError) as error:
        raise Unanswered(f"/v1/models is not a list of models: {error!r}") from error
    return {name[:LONGEST_TEXT]: source[:LONGEST_TEXT] for name, source in found.items()}


def _request(move: Move) -> tuple[str, dict[str, str], float]:
    if isinstance(move, Load):
        body = {"lora_name": move.adapter.name, "lora_path": move.adapter.source}
        return "/v1/load_lora_adapter", body, LOAD_LIMIT_S
    return "/v1/unload_lora_adapter", {"lora_name": move.name}, UNLOAD_LIMIT_S


def _stop(pod: _Pod) -> None:
    if pod.task is not None:
        pod.task.cancel()
