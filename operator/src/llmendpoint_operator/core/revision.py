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

TEMPLATE_VERSION = 3
"""Version of the pod template in deployment.py that new revisions record. 2: with readiness: Generation the sidecar says
whether the engine lives, too. 3: records hold every input with its value."""

KNOWN_TEMPLATES = frozenset({1, 2, 3})
"""Versions that deployment.py renders: those of revisions which earlier operators made are kept, so that an upgrade
restarts nothing."""

HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """One ControllerRevision. `number` orders revisions by when the spec last asked for them; `salt` is the id of the
    restart that made it, which tells it from others of the same inputs; `grace_seconds` is how long its pods have to end
    their requests where that is derived (grace.py), None where the inputs say it;
    `commit` is what an hf:// source was when the revision was made."""

    hash: str
    number: int
    template_version: int
    inputs: PodInputs
    runtime: LLMRuntimeSpec
    salt: str = ""
    grace_seconds: int | None = None
    commit: str = ""


def normalised_inputs(spec: PodInputs) -> dict[str, Any]:
    """The JSON of the fields that decide what a pod is, without those that have their default. What an accelerator is
    called and how much memory it has changes no pod."""
    return spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        include=set(PodInputs.model_fields),
        exclude={"resources": {"accelerator": {"product", "memory"}}},
    )


def revision_hash(spec: PodInputs, salt: str = "") -> str:
    """Ten hexadecimal digits: 40 bits, among the few revisions of one endpoint."""
    inputs = normalised_inputs(spec)
    text = json.dumps([inputs, salt] if salt else inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def revision_data(revision: Revision) -> dict[str, Any]:
    """The `data` of a new ControllerRevision; the API server never lets it change."""
    data = {
        "templateVersion": revision.template_version,
        "inputs": normalised_inputs(revision.inputs),
        "runtime": revision.runtime.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
    optional = {
        "salt": revision.salt,
        "gracePeriodSeconds": revision.grace_seconds,
        "modelCommit": revision.commit,
    }
    return data | {key: value for key, value in optional.items() if value}


def parse_revision(manifest: dict[str, Any]) -> Revision | None:
    """A ControllerRevision as Revision; None when it is not one that this version can render."""
    hash_ = manifest["metadata"].get("labels", {}).get(REVISION_LABEL)
    data = manifest.get("data") or {}
    version = data.get("templateVersion")
    if not hash_ or version not in KNOWN_TEMPLATES:
        return None
    try:
        inputs = PodInputs.model_validate(data["inputs"])
        runtime = LLMRuntimeSpec.model_validate(data["runtime"])
    except (KeyError, ValueError, TypeError):
        return None
    number, salt = int(manifest.get("revision", 0)), str(data.get("salt", ""))
    commit = str(data.get("modelCommit", ""))
    return Revision(hash_, number, version, inputs, runtime, salt, data.get("gracePeriodSeconds"), commit)
