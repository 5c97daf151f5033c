"""Gather, plan, act: one endpoint at a time, from the caches to the API server."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from .audit import Auditor
from .circuits import Circuits
from .core.allowed import BY_DEFAULT, Allowed
from .core.fit import INSPECTS_LABEL
from .core.neighbours import Neighbours
from .core.plan import Apply, Delete, Plan, Step, WriteStatus, make_plan
from .core.snapshot import Endpoint, Refusal, ScalerAddress, Snapshot
from .core.steps import events_of
from .errors import ApiError, Conflict, NotFound, Refused
from .evidence import Collector
from .gather import gather
from .inspection import Inspection
from .kube import resources
from .kube.caches import Caches
from .kube.client import Json, KubeApi
from .kube.events import EventWriter
from .metrics import Metrics
from .models import Models
from .scaler import Scaler

log = structlog.get_logger()

Key = tuple[str, str]

FREE_PASSES = 5
"""Consecutive passes with writes before the next one waits; a rollout takes two or three."""


class Reconciler:
    """Holds nothing that a restart could not find again: refusals come back with the next attempt."""

    def __init__(
        self,
        api: KubeApi,
        caches: Caches,
        events: EventWriter,
        metrics: Metrics,
        gateway_url: str | None,
        collector: Collector,
        neighbours: Neighbours | None = None,
        probe_image: str | None = None,
        *,
        scaler: Scaler,
        models: Models,
        circuits: Circuits,
        model_image: str | None = None,
        inspection: Inspection,
        scaler_address: ScalerAddress | None = None,
        allowed: Allowed = BY_DEFAULT,
    ) -> None:
        self._api = api
        self._caches = caches
        self._events = events
        self._auditor = Auditor(events)
        self._metrics = metrics
        self._gateway_url = gateway_url
        self._collector = collector
        self._neighbours = neighbours
        self._probe_image = probe_image
        self._scaler = scaler
        self._models = models
        self._model_image = model_image
        self._inspection = inspection
        self._circuits = circuits
        self._scaler_address = scaler_address
        self._allowed = allowed
        self._refusals: dict[Key, Refusal] = {}
        self._passes: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> float | None:
        """One pass; the seconds after which to come again, or None. Raises what the API server said."""
        started = time.monotonic()
        try:
            delay = await self._reconcile(key)
        except Conflict:
            # Somebody was faster; the watch brings what they wrote.
            self._metrics.reconciles.labels("conflict").inc()
            raise
        except Exception:
            self._metrics.reconciles.labels("error").inc()
            raise
        finally:
            self._metrics.reconcile_seconds.observe(time.monotonic() - started)
        self._metrics.reconciles.labels("ok").inc()
        return delay

    async def _reconcile(self, key: Key) -> float | None:
        manifest = self._caches.get(resources.ENDPOINTS, *key)
        if manifest is None:
            self._refusals.pop(key, None)
            self._passes.pop(key, None)
            self._collector.forget(key)
            self._scaler.forget(key)
            self._models.forget(key)
            self._inspection.forget(key)
            self._auditor.forget(key)
            return None
        self._auditor.look(manifest)
        plan, snapshot = self._plan(key, manifest)
        try:
            for step in plan.steps:
                await self._do(snapshot.endpoint, step)
                if isinstance(step, WriteStatus):
                    self._auditor.taken_up(snapshot, manifest, step.status)
        except Refused as error:
            await self._report(key, error)
            raise
        cleared = self._refusals.pop(key, None) is not None
        if not plan.steps and not cleared:
            self._passes.pop(key, None)
            return plan.requeue_after
        return self._again(key)

    def _again(self, key: Key) -> float:
        """Look once more after writing. Who rewrites what we write (an admission webhook) must not make us spin."""
        passes = self._passes[key] = self._passes.get(key, 0) + 1
        if passes <= FREE_PASSES:
            return 0.0
        log.warning("something keeps changing what was written", endpoint="/".join(key), passes=passes)
        return float(min(2 ** (passes - FREE_PASSES), 300))

    def _plan(self, key: Key, manifest: Json) -> tuple[Plan, Snapshot]:
        refusal = self._refusals.get(key)
        snapshot = gather(
            self._caches, manifest, refusal, self._gateway_url, self._neighbours, self._probe_image,
            self._model_image, self._scaler_address, self._allowed,
        )  # fmt: skip
        scaling, circuits = self._scaler.look(snapshot), self._circuits.of(key)
        snapshot = self._models.look(key, replace(snapshot, scaling=scaling, circuits=circuits))
        snapshot = replace(snapshot, evidence=self._collector.look(snapshot))
        snapshot = self._inspection.look(key, snapshot)
        return make_plan(snapshot, datetime.now(UTC)), snapshot

    async def _report(self, key: Key, error: Refused) -> None:
        """Write into the status that a write was refused; the write itself is tried again later."""
        self._refusals[key] = Refusal(error.target, error.message)
        manifest = self._caches.get(resources.ENDPOINTS, *key)
        if manifest is None:
            return
        plan, snapshot = self._plan(key, manifest)
        for step in plan.steps:
            if isinstance(step, WriteStatus):
                await self._do(snapshot.endpoint, step)
                self._auditor.taken_up(snapshot, manifest, step.status)

    async def _do(self, endpoint: Endpoint, step: Step) -> None:
        kind, verb = _described(step)
        try:
            written = await self._write(endpoint, step)
        except ApiError as error:
            self._metrics.write_errors.labels(kind, str(error.status)).inc()
            if isinstance(error, Refused) and isinstance(step, Apply) and step.optional:
                self._decline(endpoint, step, error)
                return
            raise
        if not written:
            return
        self._metrics.writes.labels(kind, verb).inc()
        log.info(
            "wrote",
            endpoint=f"{endpoint.namespace}/{endpoint.name}",
            kind=kind,
            verb=verb,
            decision=_said(step),
        )
        for event in events_of(step):
            self._events.write(endpoint, event)

    def _decline(self, endpoint: Endpoint, step: Apply, error: Refused) -> None:
        """Do without it: the next pass knows."""
        key, labels = (endpoint.namespace, endpoint.name), step.manifest["metadata"]["labels"]
        log.warning("refused, and not needed", endpoint="/".join(key), what=error.target, error=error.message)
        self._inspection.refuse(key, labels[INSPECTS_LABEL], error.message)

    async def _write(self, endpoint: Endpoint, step: Step) -> bool:
        """False when there was nothing to do: the object was gone before its delete reached the cache."""
        if isinstance(step, Apply):
            manifest = step.manifest
            resource = resources.BY_KIND[manifest["apiVersion"], manifest["kind"]]
            try:
                self._caches.remember(resource, await self._api.apply(resource, manifest))
            except Refused as error:
                error.target = f"{manifest['kind']} {manifest['metadata']['name']}"
                raise
        elif isinstance(step, Delete):
            resource = resources.BY_KIND[step.api_version, step.kind]
            try:
                await self._api.delete(resource, step.namespace, step.name)
            except NotFound:
                return False
        else:
            metadata = {
                "namespace": endpoint.namespace,
                "name": endpoint.name,
                "resourceVersion": step.resource_version,
            }
            body = {
                "apiVersion": resources.ENDPOINTS.api_version,
                "kind": resources.ENDPOINTS.kind,
                "metadata": metadata,
            }
            written = await self._api.apply(resources.ENDPOINTS, {**body, "status": step.status}, "status")
            self._caches.remember(resources.ENDPOINTS, written)
        return True


def _described(step: Step) -> tuple[str, str]:
    if isinstance(step, Apply):
        return step.manifest["kind"], "apply"
    return (step.kind, "delete") if isinstance(step, Delete) else ("LLMEndpoint/status", "apply")


def _said(step: Step) -> str | None:
    return "; ".join(f"{event.reason}: {event.message}" for event in events_of(step)) or None
