"""What a revision is made of, and its hash.

The hash covers the endpoint's inputs that decide what a pod is, not the rendered pod: neither an upgraded operator nor
an edited LLMRuntime makes a new revision. Fields that have their default are left out, so that a field which a later
version adds changes no hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..api import LLMRuntimeSpec, PodInputs
from .names import REVISION_LABEL

TEMPLATE_VERSION = 1
"""Version of the pod template in deployment.py that new revisions record."""

HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """One ControllerRevision. `number` orders revisions by when the spec last asked for them."""

    hash: str
    number: int
    template_version: int
    inputs: PodInputs
    runtime: LLMRuntimeSpec


def normalised_inputs(spec: PodInputs) -> dict[str, Any]:
    """The JSON of the fields that decide what a pod is, without those that have their default."""
    return spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=set(PodInputs.model_fields)
    )


def revision_hash(spec: PodInputs) -> str:
    """Ten hexadecimal digits: 40 bits, among the few revisions of one endpoint."""
    text = json.dumps(normalised_inputs(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def revision_data(spec: PodInputs, runtime: LLMRuntimeSpec) -> dict[str, Any]:
    """The `data` of a new ControllerRevision; the API server never lets it change."""
    return {
        "templateVersion": TEMPLATE_VERSION,
        "inputs": normalised_inputs(spec),
        "runtime": runtime.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }


def parse_revision(manifest: dict[str, Any]) -> Revision | None:
    """A ControllerRevision as Revision; None when it is not one that this version can render."""
    hash_ = manifest["metadata"].get("labels", {}).get(REVISION_LABEL)
    data = manifest.get("data") or {}
    if not hash_ or data.get("templateVersion") != TEMPLATE_VERSION:
        return None
    try:
        inputs = PodInputs.model_validate(data["inputs"])
        runtime = LLMRuntimeSpec.model_validate(data["runtime"])
    except (KeyError, ValueError):
        return None
    return Revision(hash_, int(manifest.get("revision", 0)), TEMPLATE_VERSION, inputs, runtime)
