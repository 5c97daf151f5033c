"""Whose an object is that has a child's name: nothing is written over one that is not the endpoint's own.

| holder | how it is known | what follows |
|---|---|---|
| OURS | an owner reference with the endpoint's uid; of a model's Job, which no endpoint owns, our labels and our field manager | it is kept as wanted |
| FORMER | an owner reference to an LLMEndpoint of the same name with another uid | garbage collection deletes it; the endpoint waits |
| STRANGER | everything else, whatever its labels say | it is left as it is, and the endpoint says so |

A backup that is restored with the children brings FORMER ones: the endpoint has a new uid, and garbage collection deletes
what names the old one.
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
"""Garbage collection takes a second or two; what is still there so long after the endpoint was made, stays."""
GUARDS = ("ServiceAccount", "NetworkPolicy")
"""What the pods run as, and who reaches them: while one of these is not ours no pod is made."""
MAKE_PODS = ("Deployment", "ControllerRevision", "Job")


class Holder(StrEnum):
    """Whose an object is."""

    OURS = "Ours"
    FORMER = "Former"
    STRANGER = "Stranger"


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object in a child's place that is not the endpoint's own."""

    kind: str
    name: str
    holder: Holder


Foreigners = Mapping[tuple[str, str], Foreign]
"""By kind and name."""


def holder_of(live: Manifest, owner: Owner) -> Holder:
    """Whose a child of `owner` is."""
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
    """Whose a Job is that downloads or deletes a model: it belongs to no endpoint, for several may share it."""
    metadata = live["metadata"]
    labels = metadata.get("labels") or {}
    marked = labels.get("app.kubernetes.io/managed-by") == MANAGER
    named = labels.get(MODEL_JOB_LABEL) == metadata["name"]
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    ours = marked and named and MANAGER in managers and not metadata.get("ownerReferences")
    return Holder.OURS if ours else Holder.STRANGER


def owner_in(manifest: Manifest) -> Owner | None:
    """The endpoint that a child as we make it belongs to; None of a model's Job."""
    metadata = manifest["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        return Owner(metadata["namespace"], reference["name"], reference["uid"])
    return None


def holder(live: Manifest, owner: Owner | None) -> Holder:
    """Whose `live` is; `owner` is None of a model's Job."""
    return holder_of_model_job(live) if owner is None else holder_of(live, owner)


def permitted(steps: Iterable[Step], foreign: Foreigners) -> Iterable[Step]:
    """The steps without those that would write over what is not ours, and without those that make pods while what
    guards them is not ours."""
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
    """Whether no pods of that Deployment are made now: it, or what guards its pods, is not ours."""
    return ("Deployment", deployment) in foreign or any(kind in GUARDS for kind, _ in foreign)


def foreign_cause(foreign: Foreigners, made_at: datetime | None, now: datetime) -> Cause | None:
    """What is wrong with an endpoint in whose place there is something else. `made_at`: when the endpoint was."""
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
