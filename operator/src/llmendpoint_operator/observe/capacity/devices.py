"""Which accelerators the nodes have, as their labels say it. Only where nodes may be read: with all namespaces served."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmendpoint_fit.core.devices import Device, Wanted, on_nodes

from ...kube import resources
from ...kube.client import Json, KubeApi
from ...kube.store import Informer

Devices = tuple[Device | None, ...]


class Nodes:
    """Keeps the nodes' labels, and calls `changed` when a node comes, goes or is labelled anew. A kubelet writes its
    node every few minutes, which changes nothing here."""

    def __init__(self, api: KubeApi, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._informer = Informer(api, resources.NODES, self._node_changed)
        self._told: dict[str, Json] = {}
        self._answers: dict[tuple[str, tuple[tuple[str, str], ...]], Devices] = {}

    async def run(self) -> None:
        """Until cancelled."""
        await self._informer.run()

    def devices(self, wanted: Wanted) -> Devices | None:
        """Of the nodes that have the kind and the selected labels; None while they are being listed."""
        if not self._informer.synced.is_set():
            return None
        key = (wanted.kind, tuple(sorted((wanted.selector or {}).items())))
        if key not in self._answers:
            self._answers[key] = on_nodes(wanted, self._informer.store)
        return self._answers[key]

    def _node_changed(self, node: Json) -> None:
        name, facts = node["metadata"]["name"], _facts(node)
        gone = self._informer.store.get("", name) is None
        if not gone and self._told.get(name) == facts:
            return
        if gone:
            self._told.pop(name, None)
        else:
            self._told[name] = facts
        self._answers.clear()
        self._changed()


def _facts(node: Mapping[str, Json]) -> Json:
    """Labels, and which kinds of accelerators there are: how many of them are free is the scheduler's business."""
    allocatable: Json = node.get("status", {}).get("allocatable") or {}
    kinds = {kind: str(count) != "0" for kind, count in allocatable.items() if "/" in kind}
    return {"labels": node["metadata"].get("labels") or {}, "kinds": kinds}
