"""Which accelerator it is, and what memory it has: from the labels of nodes, or from an endpoint's spec.

| label | written by | holds |
|---|---|---|
| `nvidia.com/gpu.product`, `nvidia.com/gpu.memory` | NVIDIA GPU feature discovery | product; MiB of one |
| `amd.com/gpu.product-name`, `amd.com/gpu.vram` | AMD GPU node labeller | product; `64G` (GiB), or MiB without a unit |
| `cloud.google.com/gke-accelerator` | GKE | product |
| `cloud.google.com/gke-gpu-partition-size` | GKE | for MIG slices: `1g.5gb` |
| `karpenter.k8s.aws/instance-gpu-name`, `…-gpu-memory` | Karpenter on AWS | product; MiB of one |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .accelerators import AMD, NVIDIA, Accelerator, recognise, slice_memory
from .quantity import parse_bytes

MIB, GIB = 2**20, 2**30

GKE_PRODUCT, GKE_PARTITION = "cloud.google.com/gke-accelerator", "cloud.google.com/gke-gpu-partition-size"

LABELS = (
    ("nvidia.com/gpu.product", "nvidia.com/gpu.memory"),
    ("amd.com/gpu.product-name", "amd.com/gpu.vram"),
    (GKE_PRODUCT, None),
    ("karpenter.k8s.aws/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-memory"),
)
"""(label of a product, label of its memory or None)"""

LABEL_KINDS = frozenset({NVIDIA, AMD})
"""Resource names whose accelerators these labels describe: whole ones, not slices."""

SHARED = "-SHARED"
"""The end of the product's name if several pods share one (time slicing). A pod's part of it is then unknown."""


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """Bytes of one accelerator, and its name."""

    memory: int
    title: str

    @property
    def accelerator(self) -> Accelerator | None:
        """The entry of the table; None if only the memory is known."""
        return recognise(self.title)


@dataclass(frozen=True, slots=True)
class Wanted:
    """`resources.accelerator` of a spec, with its node selector."""

    kind: str
    count: int = 1
    product: str | None = None
    memory: int | None = None
    selector: Mapping[str, str] | None = None


def parse_wanted(spec: Mapping[str, Any]) -> Wanted | None:
    """From an LLMEndpoint's spec as JSON; None if it asks for no accelerator. Raises ValueError."""
    resources = spec.get("resources") or {}
    found = resources.get("accelerator")
    if not found:
        return None
    memory = found.get("memory")
    return Wanted(
        kind=str(found["kind"]),
        count=int(found.get("count") or 1),
        product=found.get("product"),
        memory=parse_bytes(memory) if memory is not None else None,
        selector=resources.get("nodeSelector"),
    )


def said(wanted: Wanted) -> Device | None:
    """What the spec itself says: the memory, the product, the resource's name, or the node selector. None if it says
    nothing."""
    if wanted.memory is not None:
        return Device(wanted.memory, wanted.product or wanted.kind)
    if wanted.product is not None:
        return _known(wanted.product)
    slice_ = slice_memory(wanted.kind)
    if slice_ is not None:
        return Device(slice_, wanted.kind)
    return labelled(wanted.selector or {}) if wanted.kind in LABEL_KINDS else None


def labelled(labels: Mapping[str, str]) -> Device | None:
    """What a node's labels say of its accelerators; None if they say nothing certain."""
    if GKE_PARTITION in labels:
        return _known(f"{labels.get(GKE_PRODUCT, 'gpu')}-MIG-{labels[GKE_PARTITION]}")
    for product_label, memory_label in LABELS:
        product = labels.get(product_label)
        if product is None:
            continue
        if product.endswith(SHARED):
            return None
        memory = _memory(labels.get(memory_label or ""))
        return Device(memory, product) if memory is not None else _known(product)
    return None


def on_nodes(wanted: Wanted, nodes: Iterable[Mapping[str, Any]]) -> tuple[Device | None, ...]:
    """The different devices of the nodes that have the kind and the labels that the spec selects. None is among them
    for nodes whose device is unknown. Empty if no node fits."""
    slice_ = slice_memory(wanted.kind)
    found: set[Device | None] = set()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        has = str((node.get("status") or {}).get("allocatable", {}).get(wanted.kind, "0")) not in ("0", "")
        selected = all(labels.get(key) == value for key, value in (wanted.selector or {}).items())
        if has and selected:
            whole = labelled(labels) if wanted.kind in LABEL_KINDS else None
            found.add(Device(slice_, wanted.kind) if slice_ is not None else whole)
    return tuple(sorted(found, key=lambda device: (device is None, device or Device(0, ""))))


def _known(product: str) -> Device | None:
    slice_ = slice_memory(product)
    if slice_ is not None:
        return Device(slice_, product)
    accelerator = recognise(product)
    return Device(accelerator.memory, product) if accelerator is not None else None


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text[:-1]) * GIB if text.endswith("G") else int(text) * MIB
    except ValueError:
        return None
