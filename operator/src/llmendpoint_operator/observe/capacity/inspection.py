"""What the condition CapacityFits is made from, beside the caches: the hub's answers, the Job's, and the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmendpoint_fit.core.devices import parse_wanted

from ...core.capacity.findings import hub_question
from ...core.capacity.inspection import INSPECTS_LABEL, inspection_name
from ...core.endpoint.ownership import Holder, holder_of
from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.pods.builders import Manifest, Owner
from ...kube import resources
from ...kube.caches import Caches
from .devices import Devices, Nodes
from .findings import HubModels


class Inspection:
    """`nodes`: None where they may not be read. `image`: holds llmendpoint-inspect; None where it is not known."""

    def __init__(
        self,
        caches: Caches,
        hub_endpoint: str,
        wake: Callable[[Key], None],
        nodes: Nodes | None = None,
        image: str | None = None,
    ) -> None:
        self._caches = caches
        self._models = HubModels(hub_endpoint, wake)
        self._nodes = nodes
        self._image = image
        self._refused: dict[Key, tuple[str, str]] = {}

    def look(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is known."""
        endpoint = snapshot.endpoint
        if endpoint.deleting or endpoint.spec is None:
            return snapshot
        target = str(endpoint.status.get("targetRevision", ""))
        pods = self._caches.children(resources.PODS, *key)
        revision, message = self._refused.get(key, ("", ""))
        return replace(
            snapshot,
            finding=self._models.look(key, hub_question(snapshot.revisions.get(target), endpoint.status)),
            inspection=self._job(endpoint.owner),
            inspection_pods=tuple(p for p in pods if p["metadata"]["labels"].get(INSPECTS_LABEL) == target),
            inspection_image=self._image,
            inspection_refused=message if revision == target else "",
            devices=self._devices(snapshot),
        )

    def refuse(self, key: Key, revision: str, message: str) -> None:
        """The API server does not take the Job about this revision."""
        self._refused[key] = (revision, message)

    def forget(self, key: Key) -> None:
        """The endpoint is gone."""
        self._models.forget(key)
        self._refused.pop(key, None)

    def _job(self, owner: Owner) -> Manifest | None:
        live = self._caches.get(resources.JOBS, owner.namespace, inspection_name(owner.name))
        return live if live is not None and holder_of(live, owner) is Holder.OURS else None

    def _devices(self, snapshot: Snapshot) -> Devices | None:
        spec = snapshot.endpoint.spec
        if self._nodes is None or spec is None or spec.resources.accelerator is None:
            return ()
        wanted = parse_wanted({"resources": spec.resources.model_dump(mode="json", by_alias=True)})
        return self._nodes.devices(wanted) if wanted is not None else ()
