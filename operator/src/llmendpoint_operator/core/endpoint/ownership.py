"""Who owns an object that has a child's name. The operator never overwrites an object that the endpoint does
not own.

| holder | criterion | consequence |
|---|---|---|
| OURS | an owner reference with the endpoint's uid. For a model's Job, which no endpoint owns: our labels and our field manager | the operator keeps it as wanted |
| FORMER | an owner reference to an LLMEndpoint of the same name with another uid | garbage collection deletes it; the endpoint waits |
| STRANGER | everything else, whatever its labels say | the operator leaves it unchanged and reports it in the status |

A backup that is restored with the children produces FORMER objects: the endpoint has a new uid, and garbage
collection deletes objects that refer to the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..names import MANAGER, MODEL_JOB_LABEL
from ..pods.manifests import Manifest, Owner
from ..sentences import fitting
from .causes import Cause
from .steps import Apply, Step

COLLECTED_WITHIN_SECONDS = 60.0
"""Garbage collection takes a second or two. An object that exists this long after the endpoint's creation is
not collected."""
GUARDS = ("ServiceAccount", "NetworkPolicy")
"""The pods' identity, and who may reach them. While one of these is not ours, no pod is created."""
MAKE_PODS = ("Deployment", "ControllerRevision", "Job")


class Holder(StrEnum):
    """Who owns an object."""

    OURS = "Ours"
    FORMER = "Former"
    STRANGER = "Stranger"


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object with a child's name that the endpoint does not own."""

    kind: str
    name: str
    holder: Holder


Foreigners = Mapping[tuple[str, str], Foreign]
"""By kind and name."""


def holder_of(live: Manifest, owner: Owner) -> Holder:
    """Who owns an object with the name of a child of `owner`."""
    references = live["metadata"].get("ownerReferences") or ()
    ours = [r for r in references if r.get("uid") == owner.uid]
    if ours and not any(r.get("controller") for r in references if r not in ours):
        return Holder.OURS
    former = any(
        r.get("kind") == "LLMEndpoint" and r.get("name") == owner.name and _group(r) == "llmendpoint.io"
        for r in references
        if r.get("uid") != owner.uid
    )
    return Holder.FORMER if former and not ours else Holder.STRANGER


def holder_of_model_job(live: Manifest) -> Holder:
    """Who owns a Job that downloads or deletes a model. No endpoint owns it, because several may share it."""
    metadata = live["metadata"]
    labels = metadata.get("labels") or {}
    marked = labels.get("app.kubernetes.io/managed-by") == MANAGER
    named = labels.get(MODEL_JOB_LABEL) == metadata["name"]
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    ours = marked and named and MANAGER in managers and not metadata.get("ownerReferences")
    return Holder.OURS if ours else Holder.STRANGER


def owner_in(manifest: Manifest) -> Owner | None:
    """The endpoint that owns a child, from the manifest that we make; None for a model's Job."""
    metadata = manifest["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        return Owner(metadata["namespace"], reference["name"], reference["uid"])
    return None


def holder(live: Manifest, owner: Owner | None) -> Holder:
    """Who owns `live`. `owner` is None for a model's Job."""
    return holder_of_model_job(live) if owner is None else holder_of(live, owner)


def permitted(steps: Iterable[Step], foreign: Foreigners) -> Iterable[Step]:
    """The steps without those that would overwrite foreign objects, and without those that create pods while
    one of GUARDS is foreign."""
    unguarded = any(kind in GUARDS for kind, _ in foreign)
    for step in steps:
        if isinstance(step, Apply):
            kind, name = step.manifest["kind"], step.manifest["metadata"]["name"]
            if (kind, name) in foreign or (unguarded and kind in MAKE_PODS):
                continue
            if kind == "ControllerRevision" and ("Deployment", name) in foreign:
                continue  # a revision whose pods cannot be made is not recorded
        yield step


def bars_pods(foreign: Foreigners, deployment: str) -> bool:
    """Whether the pods of this Deployment cannot be created now: it, or one of GUARDS, is foreign."""
    return ("Deployment", deployment) in foreign or any(kind in GUARDS for kind, _ in foreign)


def foreign_cause(foreign: Foreigners, made_at: datetime | None, now: datetime) -> Cause | None:
    """The cause when foreign objects have the names of children. `made_at`: creation time of the endpoint."""
    if not foreign:
        return None
    age = (now - made_at).total_seconds() if made_at is not None else COLLECTED_WITHIN_SECONDS
    awaited = age < COLLECTED_WITHIN_SECONDS and all(f.holder is Holder.FORMER for f in foreign.values())
    what = ", ".join(f"{kind} {name}" for kind, name in sorted(foreign))
    if awaited:
        said = f"waits until garbage collection has deleted {what} of the endpoint that had this name before"
        return Cause("NameInUse", fitting(said), expected=True)
    said = f"{what} already exists and does not belong to this endpoint, so the operator does not change it"
    hint = "delete or rename it, or give the LLMEndpoint another name"
    return Cause("NotOwned", fitting(f"{said}; {hint}"), permanent=True)


def _group(reference: Mapping[str, object]) -> str:
    return str(reference.get("apiVersion", "")).partition("/")[0]
