"""What is reported to outside scalers, from the caches and the gateways' reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from ...api.autoscaling import AutoscalingSpec, Provider
from ...core.endpoint.reported import cleaned
from ...core.names import Key
from ...core.scaling.demand import Demand
from ...core.scaling.handover import kept_count
from ...core.scaling.opinion import Opinion, find_opinion
from ...core.scaling.scene import read_scene
from ...gather import Platform, gather
from ...kube import resources
from ...kube.caches import Caches
from ...kube.store import key_of

log = structlog.get_logger()


PATIENCE_S = 5.0
"""Seconds after which a stream is checked without news: figures become stale without an event."""


class Opinions:
    """The opinion on each endpoint with an outside scaler. `demand_of` returns an endpoint's known demand."""

    def __init__(self, caches: Caches, demand_of: Callable[[Key], Demand | None]) -> None:
        self._caches = caches
        self._demand_of = demand_of
        self._bells: dict[Key, asyncio.Event] = {}

    def answer(self, key: Key) -> Opinion | None:
        """The opinion for KEDA; None if KEDA does not scale the endpoint."""
        return self._of(key, Provider.KEDA)

    def for_autoscalers(self) -> Iterator[tuple[Key, int]]:
        """Recommendations for all endpoints with a HorizontalPodAutoscaler and a known load."""
        for manifest in self._caches.informers[resources.ENDPOINTS].store:
            key = key_of(manifest)
            try:
                found = self._of(key, Provider.HPA)
            except Exception:  # any: only this endpoint is left out of the page
                log.exception("no recommendation", endpoint="/".join(key))
                continue
            if found is not None and found.replicas is not None:
                yield key, found.replicas

    def heard(self, key: Key) -> None:
        """To be called when a gateway reported something new."""
        bell = self._bells.pop(key, None)
        if bell is not None:
            bell.set()

    async def changed(self, key: Key) -> None:
        """Wait until something new may be known, or PATIENCE_S have passed."""
        bell = self._bells.setdefault(key, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(bell.wait(), PATIENCE_S)

    def _of(self, key: Key, provider: Provider) -> Opinion | None:
        manifest = self._caches.get(resources.ENDPOINTS, *key)
        if manifest is None or _named_provider(manifest) != provider:
            return None
        now = datetime.now(UTC)
        snapshot = cleaned(gather(self._caches, manifest, Platform()), now)
        spec = snapshot.endpoint.spec
        autoscaling: AutoscalingSpec | None = spec.autoscaling if spec else None
        if spec is None or autoscaling is None:
            return None
        kept = kept_count(snapshot, now)
        scene = read_scene(snapshot, autoscaling, spec.replicas if kept is None else kept, now)
        return find_opinion(replace(scene, demand=self._demand_of(key)))


def _named_provider(manifest: dict[str, object]) -> object:
    """The provider in the unparsed spec: a quick check, because most endpoints have another one."""
    spec = manifest.get("spec")
    autoscaling = spec.get("autoscaling") if isinstance(spec, dict) else None
    return autoscaling.get("provider") if isinstance(autoscaling, dict) else None
