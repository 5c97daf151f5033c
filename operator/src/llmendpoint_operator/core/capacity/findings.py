"""What is known of a revision's model, from the status, the hub or a Job. Each revision is read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from llmendpoint_fit.core.devices import Device
from llmendpoint_fit.core.model import Model, model_as_json, model_from_json

from ..models.files import CACHE_PATH, Delivery, delivery
from ..models.identity import HubModel, split_hub
from ..pods.arguments import model_path, split_pvc
from ..pods.manifests import Manifest
from ..pods.revision import Revision

PROBLEM_LIMIT = 1024
SECONDS = 300
"""Deadline of a Job that reads a model, including the time to attach the volume and pull the image."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The model, or why it is unknown."""

    model: Model | None = None
    problem: str = ""

    def as_json(self, revision: str) -> dict[str, Any]:
        """The value of `status.capacity`."""
        if self.model is None:
            return {"revision": revision, "problem": self.problem[:PROBLEM_LIMIT]}
        return {"revision": revision, "model": model_as_json(self.model)}


@dataclass(frozen=True, slots=True)
class Inspected:
    """The inputs of CapacityFits beside the status. `finding`: what the hub says of the target's model.
    `job`, `pods`, `image`: the Job that reads the model on a claim. `refused`: why that Job was refused."""

    finding: Finding | None = None
    job: Manifest | None = None
    pods: tuple[Manifest, ...] = ()
    image: str | None = None
    refused: str = ""
    devices: tuple[Device | None, ...] | None = ()
    """Accelerators of the selected nodes, None for an unknown one; None while the nodes are being read."""


class OnClaim(NamedTuple):
    """Where a model is on a PersistentVolumeClaim: the claim, its mount path, and the model's folder in
    it."""

    claim: str
    mounted: str
    folder: str


@dataclass(frozen=True, slots=True)
class HubQuestion:
    """A model of the hub, and the commit to ask about."""

    model: HubModel
    commit: str


def recorded(status: Mapping[str, Any], revision: str) -> Finding | None:
    """The finding for this revision in the status; None if the status is about another revision."""
    found = status.get("capacity") or {}
    if found.get("revision") != revision:
        return None
    return _parsed(
        found.get("model"), str(found.get("problem") or "the status does not say what the model is")
    )


def on_claim(revision: Revision) -> OnClaim | None:
    """The place of a `pvc://` model, or of a Job's download to a cache; None if only engine pods have the
    model."""
    model = revision.inputs.model
    pvc = split_pvc(model.source)
    if pvc is not None:
        return OnClaim(pvc[0], f"/models/{pvc[0]}", model_path(model))
    if delivery(model) is Delivery.JOB and model.cache is not None:
        return OnClaim(model.cache.claim_name, CACHE_PATH, model_path(model, revision.commit))
    return None


def hub_model_of(revision: Revision) -> HubModel | None:
    """The hub's model that the operator may ask about; None if it needs credentials or is on a claim."""
    model = revision.inputs.model
    return split_hub(model.source) if model.credentials is None and on_claim(revision) is None else None


def hub_question(target: Revision | None, status: Mapping[str, Any]) -> HubQuestion | None:
    """What to ask the hub; None if the answer is not needed or already known."""
    model = hub_model_of(target) if target is not None else None
    if target is None or model is None or not target.commit or target.inputs.resources.accelerator is None:
        return None
    return None if recorded(status, target.hash) is not None else HubQuestion(model, target.commit)


def inspected(job: Manifest, pods: tuple[Manifest, ...]) -> Finding | None:
    """The result of the Job; None while it runs."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses") or ():
            ended = container.get("state", {}).get("terminated") or {}
            if ended.get("message"):
                return _message(str(ended["message"]))
    failed = next((c for c in job.get("status", {}).get("conditions") or () if _is_failure(c)), None)
    if failed is None:
        return None
    if failed.get("reason") == "DeadlineExceeded":
        return Finding(
            problem=f"the Job that reads the model did not end within {SECONDS} s; see the Events of its pod"
        )
    return Finding(problem=f"the Job that reads the model failed: {failed.get('message', '')}")


def _is_failure(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "Failed" and condition.get("status") == "True"


def _message(text: str) -> Finding:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return Finding(problem=f"the Job that reads the model ended with: {text[:300]}")
    if not isinstance(said, dict):
        return Finding(problem=f"the Job that reads the model ended with: {text[:300]}")
    return _parsed(said, str(said.get("problem") or "the Job that reads the model said something else"))


def _parsed(found: Any, problem: str) -> Finding:
    try:
        return Finding(model_from_json(found))
    except (KeyError, TypeError, ValueError):
        return Finding(problem=problem)
