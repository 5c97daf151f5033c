"""The revision that the spec asks for, and the one that gets requests even if the status was lost.

The target is the revision with the hash of the spec's inputs. `undo` and `restart` replace it by another one
until the spec changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...api import LLMEndpointSpec, PodInputs
from ...errors import SpecError
from ..endpoint.allowed import environment_refused
from ..endpoint.causes import Cause
from ..endpoint.ownership import bars_pods
from ..endpoint.snapshot import Snapshot
from ..models.awaited import model_awaited
from ..models.files import is_downloaded, needs_image
from ..models.identity import Identity
from ..models.tasks import Awaited
from ..names import REVISION_LABEL, child_name
from ..pods.agreement import agrees, current_hash, names_inputs
from ..pods.deployment import make_deployment
from ..pods.grace import derived_grace
from ..pods.revision import TEMPLATE_VERSION, Revision, defaulted_paths
from ..sentences import fitting
from .records import Override, parse_override


@dataclass(frozen=True, slots=True)
class Target:
    """The target. If it cannot be made, `revision` is None and `problem` says why. `hash` is always known."""

    hash: str
    revision: Revision | None
    problem: Cause | None = None


def find_target(snapshot: Snapshot, spec: LLMEndpointSpec, hash_: str, salt: str) -> Target:
    """The revision as recorded, or a new one from the present runtime. `salt`: id of the restart that asks
    for it."""
    if hash_ in snapshot.revisions:
        return Target(hash_, snapshot.revisions[hash_])
    if hash_ in snapshot.records:
        name = child_name(snapshot.endpoint.name, hash_)
        message = f"ControllerRevision {name} was written by another version of the operator"
        hint = "upgrade the operator, or delete that object"
        return Target(hash_, None, Cause("RevisionUnreadable", f"{message}; {hint}", permanent=True))
    if bars_pods(snapshot.foreign, child_name(snapshot.endpoint.name, hash_)):
        return Target(hash_, None)  # the status names the foreign object
    if snapshot.runtime_error:
        return Target(hash_, None, replace(unreadable_runtime(spec, snapshot), permanent=True))
    if snapshot.runtime is None:
        message = f"LLMRuntime {spec.runtime.name} does not exist"
        hint = "see `kubectl get llmruntimes` and correct spec.runtime.name"
        return Target(hash_, None, Cause("RuntimeNotFound", f"{message}; {hint}", permanent=True))
    if needs_image(spec.model) and snapshot.runtime.model_image is None:
        message = f"model.source {spec.model.source} needs llmendpoint-model to download it, and the operator knows no image of that"
        hint = f"set spec.modelImage of LLMRuntime {spec.runtime.name}, or the chart's models.image"
        return Target(hash_, None, Cause("RuntimeInvalid", f"{message}; {hint}", permanent=True))
    refused = environment_refused(spec, snapshot.allowed)
    if refused is not None:
        return Target(hash_, None, refused)
    awaited = snapshot.observed.awaited
    mine = awaited if awaited is not None and awaited.revision == hash_ else Awaited(hash_)
    identity = mine.identity if is_downloaded(spec.model) else Identity()
    waits_for = model_awaited(spec.model, identity, mine.task)
    if identity is None or waits_for is not None:
        return Target(hash_, None, waits_for)
    grace = derived_grace(spec)
    defaulted = frozenset(defaulted_paths(spec, PodInputs.model_fields))
    revision = Revision(
        hash_, 0, TEMPLATE_VERSION, spec, snapshot.runtime, salt, grace, identity.commit, defaulted
    )
    try:
        make_deployment(snapshot.endpoint.owner, revision, 0)
    except SpecError as error:
        message = f"LLMRuntime {spec.runtime.name} cannot run this endpoint: {error}"
        return Target(hash_, None, Cause("RuntimeInvalid", message, permanent=True))
    return Target(hash_, revision)


def unreadable_runtime(spec: LLMEndpointSpec, snapshot: Snapshot) -> Cause:
    """The cause for an unreadable LLMRuntime. Existing revisions have a copy of theirs and keep running."""
    message = f"LLMRuntime {spec.runtime.name} cannot be read by this version of the operator: {snapshot.runtime_error}"
    hint = "correct it, or upgrade the operator; existing revisions run, scale and roll back as before, but no new one is made"
    return Cause("RuntimeUnreadable", fitting(f"{message}; {hint}", 1024))


def unresolved(snapshot: Snapshot) -> tuple[str, LLMEndpointSpec] | None:
    """Hash and inputs of the revision that is about to be made and whose model must be resolved. None if
    there is none, or the platform does not allow the download."""
    spec = snapshot.endpoint.spec
    if spec is None or snapshot.endpoint.deleting or not is_downloaded(spec.model):
        return None
    inputs = current_hash(spec, snapshot.revisions)
    override = find_override(snapshot, spec, find_active(snapshot), inputs)
    hash_ = override.revision if override else inputs
    if hash_ in snapshot.records or environment_refused(spec, snapshot.allowed) is not None:
        return None
    return hash_, spec


def find_active(snapshot: Snapshot) -> str | None:
    """The revision with requests, from the status; if that was lost, from the plain Service's selector."""
    active = snapshot.endpoint.status.get("activeRevision")
    if active:
        return str(active)
    service = snapshot.services.get(snapshot.endpoint.name, {})
    selected = service.get("spec", {}).get("selector", {}).get(REVISION_LABEL)
    return str(selected) if selected in snapshot.deployments else None


def find_override(
    snapshot: Snapshot, spec: LLMEndpointSpec, active: str | None, inputs: str
) -> Override | None:
    """The override in the status, while the spec is unchanged. If the status was lost, a restarted revision
    that gets requests is still the target, though its hash differs from the spec's. `inputs`: the spec's
    current_hash."""
    found = parse_override(snapshot.endpoint.status)
    if found is not None:
        kept = found.salt or found.revision in snapshot.revisions
        restarted = snapshot.revisions.get(found.revision) if found.salt else None
        same = names_inputs(found.inputs, spec, inputs)
        return found if kept and (same or (restarted is not None and agrees(spec, restarted))) else None
    if not was_lost(snapshot, active) or active == inputs:
        return None
    revision = snapshot.revisions.get(active or "")
    if revision is None or not agrees(spec, revision):
        return None
    return Override(inputs, revision.hash, revision.salt)


def was_lost(snapshot: Snapshot, active: str | None) -> bool:
    """Whether the status lacks the active revision though one gets requests."""
    return active is not None and not snapshot.endpoint.status.get("activeRevision")
