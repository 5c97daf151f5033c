"""Reconciles one endpoint at a time: gathers a snapshot from the caches, makes a plan, and carries it out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from .core.capacity.inspection import INSPECTS_LABEL
from .core.endpoint.disputes import said as contested
from .core.endpoint.ownership import Foreign, Holder
from .core.endpoint.plan import Apply, Delete, Plan, Step, WriteStatus, make_plan
from .core.endpoint.reported import cleaned
from .core.endpoint.snapshot import Endpoint, Refusal, Snapshot
from .core.endpoint.steps import Event, events_of
from .core.names import Key
from .core.pauses import growing_pause
from .errors import ApiError, Conflict, NotOwned, Refused
from .gather import Platform, gather, parse_owner
from .kube import resources
from .kube.caches import Caches
from .kube.children import Children
from .kube.client import Json, KubeApi
from .kube.events import EventWriter
from .metrics import Metrics
from .observe.endpoint.audit import Auditor
from .observe.endpoint.disputes import Contests
from .observe.endpoint.ownership import Registry
from .observe.observers import Observers

log = structlog.get_logger()


FREE_PASSES = 5
"""Consecutive passes with writes before a pause follows. A rollout takes two or three."""
FIRST_PAUSE_S, LAST_PAUSE_S = 2.0, 300.0

FREE_CONFLICTS = 5
"""Consecutive conflicts that are retried after AFTER_CONFLICT_S; later ones are retried with backoff."""
AFTER_CONFLICT_S = 0.02


@dataclass(frozen=True, slots=True)
class Context:
    """What a Reconciler reads from, what it writes to, and the operator's settings."""

    api: KubeApi
    caches: Caches
    events: EventWriter
    metrics: Metrics
    observers: Observers
    platform: Platform


class Reconciler:
    """Runs the passes. Its memory may be lost: after a restart, refused writes are attempted and refused
    again."""

    def __init__(self, context: Context) -> None:
        self._api = context.api
        self._caches = context.caches
        self._events = context.events
        self._metrics = context.metrics
        self._observers = context.observers
        self._platform = context.platform
        self._auditor = Auditor(context.events)
        self._children = Children(context.api, context.caches)
        self._foreigners = Registry(self._children, context.caches)
        self._contests = Contests(self._children)
        self._refusals: dict[Key, Refusal] = {}
        self._passes: dict[Key, tuple[int, float]] = {}
        """Consecutive passes with writes, and the monotonic time when the pause after the last ends."""
        self._conflicts: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass. Returns the seconds after which to requeue, or None. Raises ApiError."""
        started = time.monotonic()
        try:
            delay = await self._reconcile(key)
        except Conflict:
            # Another client wrote first. The watch delivers its write, usually before the next pass.
            self._metrics.reconciles.labels("conflict").inc()
            conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + 1
            if conflicts > FREE_CONFLICTS:
                raise
            return AFTER_CONFLICT_S
        except Exception:  # any: it is only counted here, and the work queue handles it
            self._metrics.reconciles.labels("error").inc()
            raise
        finally:
            self._metrics.reconcile_seconds.observe(time.monotonic() - started)
        self._conflicts.pop(key, None)
        self._metrics.reconciles.labels("ok").inc()
        return delay

    async def _reconcile(self, key: Key) -> float | None:
        manifest = self._caches.get(resources.ENDPOINTS, *key)
        if manifest is None:
            self._forget(key)
            return None
        self._auditor.look(manifest)
        await self._foreigners.look(key, parse_owner(manifest))
        snapshot = self._snapshot(key, manifest)
        plan = self._without_held_status(key, make_plan(snapshot, datetime.now(UTC)))
        try:
            for step in plan.steps:
                await self._do(snapshot.endpoint, step)
                if isinstance(step, WriteStatus):
                    self._auditor.taken_up(snapshot, manifest, step.status)
        except NotOwned as error:
            log.warning("left alone", endpoint="/".join(key), what=str(error))
            self._foreigners.note(key, Foreign(error.kind, error.name, Holder(error.holder)))
            return self._again(key)
        except Refused as error:
            await self._report(key, error)
            raise
        cleared = self._refusals.pop(key, None) is not None
        if not plan.steps and not cleared:
            self._passes.pop(key, None)
            return self._rest(key, plan)
        return self._again(key)

    def _without_held_status(self, key: Key, plan: Plan) -> Plan:
        """Drop the status write while it is held because another writer changes the status back."""
        now = datetime.now(UTC)
        waits = [
            self._contests.status_held(key, s.status, now) for s in plan.steps if isinstance(s, WriteStatus)
        ]
        wait = max(waits, default=0.0)
        if wait <= 0:
            return plan
        log.warning("something keeps changing the status", endpoint="/".join(key), again_in=round(wait, 1))
        steps = tuple(step for step in plan.steps if not isinstance(step, WriteStatus))
        again = wait if plan.requeue_after is None else min(wait, plan.requeue_after)
        return replace(plan, steps=steps, requeue_after=again)

    def _rest(self, key: Key, plan: Plan) -> float | None:
        """Nothing is left to write: the seconds after which to requeue, or None."""
        pause = self._contests.settle(key, plan.held, datetime.now(UTC))
        waits = (plan.requeue_after, pause, self._foreigners.look_again(key))
        return min((wait for wait in waits if wait is not None), default=None)

    def _again(self, key: Key) -> float:
        """The seconds after which to requeue after a write. They grow with consecutive passes, so that a
        writer which changes the operator's writes (an admission webhook) causes no endless loop. A pass
        before the pause has ended was triggered by another change, such as one of many pods, and starts a new
        count."""
        now = time.monotonic()
        passes, until = self._passes.get(key, (0, now))
        passes = 1 if now < until else passes + 1
        pause = (
            growing_pause(FIRST_PAUSE_S, passes - FREE_PASSES, LAST_PAUSE_S) if passes > FREE_PASSES else 0.0
        )
        self._passes[key] = passes, now + pause
        if pause:
            log.warning("something keeps changing what was written", endpoint="/".join(key), passes=passes)
        return pause

    def _snapshot(self, key: Key, manifest: Json) -> Snapshot:
        """What the caches and the observers know. The observers start to find out what is still unknown."""
        gathered = gather(self._caches, manifest, self._platform, self._refusals.get(key))
        gathered = replace(gathered, foreign=self._foreigners.of(key), disputes=self._contests.of(key))
        snapshot = cleaned(gathered, datetime.now(UTC))
        self._observers.update(snapshot)
        return replace(snapshot, observed=self._observers.read(key))

    def _forget(self, key: Key) -> None:
        """Drop everything remembered about a deleted endpoint."""
        self._refusals.pop(key, None)
        self._passes.pop(key, None)
        self._conflicts.pop(key, None)
        self._observers.forget(key)
        self._auditor.forget(key)
        self._foreigners.forget(key)
        self._contests.forget(key)

    async def _report(self, key: Key, error: Refused) -> None:
        """Write the refusal into the status. The refused write itself is retried later."""
        self._refusals[key] = Refusal(error.target, error.message)
        manifest = self._caches.get(resources.ENDPOINTS, *key)
        if manifest is None:
            return
        snapshot = self._snapshot(key, manifest)
        for step in make_plan(snapshot, datetime.now(UTC)).steps:
            if isinstance(step, WriteStatus):
                await self._do(snapshot.endpoint, step)
                self._auditor.taken_up(snapshot, manifest, step.status)

    async def _do(self, endpoint: Endpoint, step: Step) -> None:
        kind, verb = _described(step)
        try:
            told = await self._write(endpoint, step)
        except ApiError as error:
            self._metrics.write_errors.labels(kind, str(error.status)).inc()
            if isinstance(error, Refused) and isinstance(step, Apply) and step.optional:
                self._decline(endpoint, step, error)
                return
            raise
        if told is None:
            return
        self._metrics.writes.labels(kind, verb).inc()
        log.info(
            "wrote",
            endpoint=f"{endpoint.namespace}/{endpoint.name}",
            kind=kind,
            verb=verb,
            decision=_said(told),
        )
        for event in told:
            self._events.write(endpoint, event)

    def _decline(self, endpoint: Endpoint, step: Apply, error: Refused) -> None:
        """Go on without an optional object that the API server refused, and remember the refusal."""
        key, labels = (endpoint.namespace, endpoint.name), step.manifest["metadata"]["labels"]
        log.warning("refused, and not needed", endpoint="/".join(key), what=error.target, error=error.message)
        self._observers.inspection.refuse(key, labels[INSPECTS_LABEL], error.message)

    async def _write(self, endpoint: Endpoint, step: Step) -> tuple[Event, ...] | None:
        """Carry out the step and return its Events. None if nothing changed, for example because the object
        to delete was already gone and the cache still held it."""
        if isinstance(step, Apply):
            try:
                return await self._apply(endpoint, step)
            except Refused as error:
                error.target = f"{step.manifest['kind']} {step.manifest['metadata']['name']}"
                raise
        if isinstance(step, Delete):
            resource = resources.BY_KIND[step.api_version, step.kind]
            owner = None if step.shared else endpoint.owner
            gone = not await self._children.remove(resource, step.namespace, step.name, owner)
            return None if gone else events_of(step)
        await self._write_status(endpoint, step)
        return events_of(step)

    async def _apply(self, endpoint: Endpoint, step: Apply) -> tuple[Event, ...] | None:
        manifest = step.manifest
        if manifest["kind"] == "Pod":  # owned by its ReplicaSet; only annotations are applied
            self._caches.remember(resources.PODS, await self._api.apply(resources.PODS, manifest))
            return events_of(step)
        written = await self._children.put(manifest)
        if not written.changed:
            return None
        key = endpoint.namespace, endpoint.name
        dispute = await self._contests.wrote(key, manifest, written)
        if dispute is not None:
            told = () if dispute.futile else events_of(step)
            return (*told, Event("ChildContested", contested(dispute), "Warning"))
        futile = step.event is not None and step.event.reason == "ChildRestored" and written.differs(manifest)
        return () if futile else events_of(step)

    async def _write_status(self, endpoint: Endpoint, step: WriteStatus) -> None:
        """Replace the whole status if the resourceVersion is unchanged. Fields of others are dropped."""
        kind = resources.ENDPOINTS
        where = {"namespace": endpoint.namespace, "name": endpoint.name}
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**where, "resourceVersion": step.resource_version},
            "status": step.status,
        }
        self._api.check_lease()
        written = await self._api.replace(kind, endpoint.namespace, endpoint.name, body, "status")
        self._caches.remember(kind, written)
        self._contests.wrote_status((endpoint.namespace, endpoint.name), step.status, datetime.now(UTC))


def _described(step: Step) -> tuple[str, str]:
    if isinstance(step, Apply):
        return step.manifest["kind"], "apply"
    return (step.kind, "delete") if isinstance(step, Delete) else ("LLMEndpoint/status", "update")


def _said(events: Iterable[Event]) -> str | None:
    return "; ".join(f"{event.reason}: {event.message}" for event in events) or None
