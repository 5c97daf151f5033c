"""What a revision consists of, its hash, and its record.

A record contains all inputs and the runtime with all their values, defaults included, and which inputs the
user left unset. So neither an upgraded operator nor an edited LLMRuntime changes the pods of an existing
revision. agreement.py decides whether a spec still asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ...api import LLMRuntimeSpec, PodInputs
from ..adapters.mounts import claims_of
from ..names import REVISION_LABEL
from .defaults import INPUTS, RUNTIME, filled, stripped

TEMPLATE_VERSION = 3
"""Version of the pod template in deployment.py that new revisions record. 2: with readiness: Generation the
sidecar also reports the engine's liveness. 3: records contain every input with its value."""

KNOWN_TEMPLATES = frozenset({1, 2, 3})
"""Versions that deployment.py renders. Earlier ones stay, so that an upgrade restarts nothing."""

ADDITIONS_JUDGED = 3
"""From this template version on the operator removes containers, volumes and rights that others add to a
Deployment's pods. On earlier versions such additions stay, because earlier operators left them alone and
removing them would restart the pods."""

HASH_LENGTH = 10

INPUTS_VERSION = 2
"""Version of a record's inputs. 2: every field with its value. 1: fields with their default are left out."""

NOT_IN_PODS = frozenset(
    {"progressDeadlineSeconds", "resources.accelerator.product", "resources.accelerator.memory", "adapters"}
)
"""A change of these fields makes no new revision. Pods keep the recorded startup budget. Adapters are loaded while a pod
runs; what of them is in a pod is compared by adapters/mounts.py."""

SETS = frozenset({"model.servedNames"})
"""Lists whose order has no meaning."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One ControllerRevision. `number`: orders revisions by when the spec last asked for them. `salt`: id of
    the restart that made it, which distinguishes it from others with the same inputs. `grace_seconds`: the
    derived grace period (grace.py), None if the inputs' value holds. `commit`: what the hf:// or s3:// source
    resolved to when the revision was made."""

    hash: str
    number: int
    template_version: int
    inputs: PodInputs
    runtime: LLMRuntimeSpec
    salt: str = ""
    grace_seconds: int | None = None
    commit: str = ""
    defaulted: frozenset[str] = frozenset()
    """Paths of inputs that the user had left unset."""


def normalised_inputs(spec: PodInputs) -> dict[str, Any]:
    """The JSON of the fields that affect a pod, without those that have their default. For display."""
    return spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        include=set(PodInputs.model_fields),
        exclude={"resources": {"accelerator": {"product", "memory"}}},
    )


def full_inputs(spec: PodInputs) -> dict[str, Any]:
    """The JSON of all inputs, with defaults. An accelerator's product and memory are not recorded."""
    return spec.model_dump(
        mode="json",
        by_alias=True,
        include=set(PodInputs.model_fields),
        exclude={"resources": {"accelerator": {"product", "memory"}}},
    )


def revision_hash(spec: PodInputs, salt: str = "") -> str:
    """Ten hexadecimal digits (40 bits), enough among the few revisions of one endpoint."""
    inputs = full_inputs(spec)
    for path in NOT_IN_PODS:
        inputs.pop(path, None)
    if spec.adapters:
        inputs["adapterClaims"] = claims_of(spec.adapters)
    inputs["model"]["servedNames"] = sorted(inputs["model"]["servedNames"])
    return _digest([INPUTS_VERSION, inputs, salt])


def legacy_hash(spec: PodInputs) -> str:
    """The spec's hash with templates 1 and 2, which an old status may still contain."""
    return _digest(stripped(full_inputs(spec), INPUTS))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def defaulted_paths(model: BaseModel, fields: Iterable[str] | None = None, at: str = "") -> Iterator[str]:
    """Paths of the fields that the user left unset; a list item's path has its index."""
    for name in type(model).model_fields if fields is None else fields:
        path, value = at + str(type(model).model_fields[name].alias or name), getattr(model, name)
        if name not in model.model_fields_set:
            yield path
        elif isinstance(value, BaseModel):
            yield from defaulted_paths(value, None, f"{path}.")
        elif isinstance(value, tuple):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from defaulted_paths(item, None, f"{path}.{number}.")


def revision_data(revision: Revision) -> dict[str, Any]:
    """The `data` of a new ControllerRevision. The API server keeps it immutable."""
    data = {
        "templateVersion": revision.template_version,
        "inputsVersion": INPUTS_VERSION,
        "inputs": full_inputs(revision.inputs),
        "defaulted": sorted(defaulted_paths(revision.inputs, PodInputs.model_fields)),
        "runtime": revision.runtime.model_dump(mode="json", by_alias=True),
    }
    optional = {
        "salt": revision.salt,
        "gracePeriodSeconds": revision.grace_seconds,
        "modelCommit": revision.commit,
    }
    return data | {key: value for key, value in optional.items() if value}


def parse_revision(manifest: dict[str, Any]) -> Revision | None:
    """A ControllerRevision as Revision; None if this version cannot render it."""
    hash_ = manifest["metadata"].get("labels", {}).get(REVISION_LABEL)
    data = manifest.get("data") or {}
    version = data.get("templateVersion")
    if not hash_ or version not in KNOWN_TEMPLATES:
        return None
    try:
        inputs = PodInputs.model_validate(filled(data["inputs"], INPUTS))
        runtime = LLMRuntimeSpec.model_validate(filled(data["runtime"], RUNTIME))
        defaulted = (
            frozenset(map(str, data["defaulted"])) if "defaulted" in data else _left_out(data["inputs"])
        )
    except (KeyError, ValueError, TypeError):
        return None
    number, salt = int(manifest.get("revision", 0)), str(data.get("salt", ""))
    commit = str(data.get("modelCommit", ""))
    grace = data.get("gracePeriodSeconds")
    return Revision(hash_, number, version, inputs, runtime, salt, grace, commit, defaulted)


def _left_out(inputs: dict[str, Any]) -> frozenset[str]:
    """Paths of unset inputs in an old record, which omits fields with their default."""
    return frozenset(defaulted_paths(PodInputs.model_validate(inputs)))
