"""The inputs of the condition CapacityFits: the answers of the hub and the Job, and the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_fit.core.devices import Wanted, parse_wanted

from ...api import LLMEndpointSpec
from ...core.capacity.findings import Inspected, hub_question
from ...core.capacity.inspection import INSPECTS_LABEL, inspection_name
from ...core.endpoint.ownership import Holder, holder_of
from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.pods.manifests import Manifest, Owner
from ...kube import resources
from ...kube.caches import Caches
from .devices import Devices, Nodes
from .findings import HubModels


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked about an endpoint: its target revision, and the accelerators that the spec wants."""

    owner: Owner
    target: str
    wanted: Wanted | None


class Inspection:
    """`nodes`: None if they may not be read. `image`: has llmendpoint-inspect; None if unknown."""

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
        self._asked: dict[Key, _Asked] = {}
        self._refused: dict[Key, tuple[str, str]] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Ask the hub about the target's model, if that is needed."""
        endpoint = snapshot.endpoint
        key = (endpoint.namespace, endpoint.name)
        if endpoint.deleting or endpoint.spec is None:
            self._asked.pop(key, None)
            return
        target = str(endpoint.status.get("targetRevision", ""))
        self._models.ask(key, hub_question(snapshot.revisions.get(target), endpoint.status))
        self._asked[key] = _Asked(endpoint.owner, target, _accelerators(endpoint.spec))

    def of(self, key: Key) -> Inspected:
        """What is known about the endpoint."""
        asked = self._asked.get(key)
        if asked is None:
            return Inspected()
        pods = self._caches.children(resources.PODS, *key)
        revision, message = self._refused.get(key, ("", ""))
        return Inspected(
            finding=self._models.of(key),
            job=self._job(asked.owner),
            pods=tuple(p for p in pods if p["metadata"]["labels"].get(INSPECTS_LABEL) == asked.target),
            image=self._image,
            refused=message if revision == asked.target else "",
            devices=self._devices(asked.wanted),
        )

    def refuse(self, key: Key, revision: str, message: str) -> None:
        """Record that the API server refuses the Job about this revision."""
        self._refused[key] = (revision, message)

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self._models.forget(key)
        self._asked.pop(key, None)
        self._refused.pop(key, None)

    def _job(self, owner: Owner) -> Manifest | None:
        live = self._caches.get(resources.JOBS, owner.namespace, inspection_name(owner.name))
        return live if live is not None and holder_of(live, owner) is Holder.OURS else None

    def _devices(self, wanted: Wanted | None) -> Devices | None:
        return self._nodes.devices(wanted) if self._nodes is not None and wanted is not None else ()


def _accelerators(spec: LLMEndpointSpec) -> Wanted | None:
    if spec.resources.accelerator is None:
        return None
    return parse_wanted({"resources": spec.resources.model_dump(mode="json", by_alias=True)})
