"""Accelerators of the nodes, from their labels; only if all namespaces are served, else nodes cannot be
read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmendpoint_fit.core.devices import Device, Wanted, on_nodes

from ...kube import resources
from ...kube.client import Json, KubeApi
from ...kube.store import Informer

Devices = tuple[Device | None, ...]


class Nodes:
    """Caches the nodes' labels, and calls `changed` when a node is added, removed or relabelled. The
    kubelets' updates of their nodes every few minutes change nothing here."""

    def __init__(self, api: KubeApi, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._informer = Informer(api, resources.NODES, self._node_changed)
        self._told: dict[str, Json] = {}
        self._answers: dict[tuple[str, tuple[tuple[str, str], ...]], Devices] = {}

    async def run(self) -> None:
        """Keep the nodes up to date until cancelled."""
        await self._informer.run()

    def devices(self, wanted: Wanted) -> Devices | None:
        """Devices of the nodes with the wanted kind and selected labels; None until the nodes are listed."""
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
    """Labels, and the kinds of accelerators. How many are free matters to the scheduler only."""
    allocatable: Json = node.get("status", {}).get("allocatable") or {}
    kinds = {kind: str(count) != "0" for kind, count in allocatable.items() if "/" in kind}
    return {"labels": node["metadata"].get("labels") or {}, "kinds": kinds}
