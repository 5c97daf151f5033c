"""Builds the Snapshot of one endpoint from the caches, without a call to the API server."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from .api import LLMEndpointSpec, LLMRuntimeSpec, Readiness
from .core.endpoint.allowed import BY_DEFAULT, Allowed
from .core.endpoint.ownership import Holder, holder_of
from .core.endpoint.snapshot import Endpoint, Refusal, Request, ScalerAddress, Snapshot
from .core.models.files import needs_image
from .core.names import REVISION_LABEL, child_name
from .core.pods.manifests import Owner
from .core.pods.neighbours import Neighbours
from .core.pods.revision import Revision
from .core.times import parse_time
from .kube import resources
from .kube.caches import Caches
from .kube.resources import Resource

Json = dict[str, Any]

REQUEST_ANNOTATION = "llmendpoint.io/request"


@dataclass(frozen=True, slots=True)
class Platform:
    """Settings of the operator that a snapshot takes over. An image is None if none is configured."""

    gateway_url: str | None = None
    neighbours: Neighbours | None = None
    probe_image: str | None = None
    model_image: str | None = None
    scaler_address: ScalerAddress | None = None
    allowed: Allowed = BY_DEFAULT


def gather(caches: Caches, manifest: Json, platform: Platform, refusal: Refusal | None = None) -> Snapshot:
    """The Snapshot of the endpoint `manifest`."""
    endpoint = parse_endpoint(manifest)
    namespace, name, owner = endpoint.namespace, endpoint.name, endpoint.owner

    def one(kind: Resource) -> Json | None:
        item = caches.get(kind, namespace, name)
        return item if item is not None and holder_of(item, owner) is Holder.OURS else None

    def several(kind: Resource) -> list[Json]:
        found = caches.children(kind, namespace, name)
        return [item for item in found if holder_of(item, owner) is Holder.OURS]

    records = _by_revision(name, several(resources.CONTROLLER_REVISIONS))
    parsed = {hash_: caches.revisions.of(record) for hash_, record in records.items()}
    pods: dict[str, list[Json]] = defaultdict(list)
    for pod in caches.children(resources.PODS, namespace, name):
        if hash_ := pod["metadata"].get("labels", {}).get(REVISION_LABEL):  # the inspection's pod has none
            pods[hash_].append(pod)
    runtime, runtime_error = _runtime(caches, endpoint, platform)
    revisions = {hash_: revision for hash_, revision in parsed.items() if revision is not None}
    return Snapshot(
        endpoint=endpoint,
        runtime=runtime,
        runtime_error=runtime_error,
        other_paths=_other_paths(caches, endpoint, revisions.values()),
        records=records,
        revisions=revisions,
        deployments=_by_revision(name, several(resources.DEPLOYMENTS)),
        services={item["metadata"]["name"]: item for item in several(resources.SERVICES)},
        service_account=one(resources.SERVICE_ACCOUNTS),
        policies={kind.kind: item for kind in resources.POLICIES if (item := one(kind))},
        scalers={(kind.api_version, kind.kind): item for kind in resources.SCALERS if (item := one(kind))},
        scaler_address=platform.scaler_address,
        allowed=platform.allowed,
        keda_missing=caches.missing(resources.SCALED_OBJECTS),
        neighbours=platform.neighbours,
        pods={hash_: tuple(found) for hash_, found in pods.items()},
        conflicts=caches.names.conflicts((namespace, name)),
        runtime_gone=_runtime_gone(caches, endpoint),
        refusal=refusal,
        gateway_url=platform.gateway_url,
    )


def parse_endpoint(manifest: Json) -> Endpoint:
    """An LLMEndpoint as stored. If its spec is invalid, `spec` is None and `spec_error` says why."""
    metadata = manifest["metadata"]
    spec, problem = None, ""
    try:
        spec = LLMEndpointSpec.model_validate(manifest.get("spec", {}))
    except ValidationError as error:
        problem = problems(error)
    return Endpoint(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 1)),
        resource_version=metadata["resourceVersion"],
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        spec_error=problem,
        status=manifest.get("status") or {},
        created=parse_time(metadata.get("creationTimestamp")),
        request=parse_request((metadata.get("annotations") or {}).get(REQUEST_ANNOTATION)),
    )


def parse_owner(manifest: Json) -> Owner:
    """The endpoint as the owner of its children."""
    metadata = manifest["metadata"]
    return Owner(metadata["namespace"], metadata["name"], metadata["uid"])


def parse_request(text: str | None) -> Request | None:
    """The request annotation. An unreadable one gets an id from its text, so that it is answered once."""
    if text is None:
        return None
    try:
        found = json.loads(text)
        id_, action, revision = found["id"], found["action"], found.get("revision")
        fields = (id_, action, *([revision] if revision is not None else []))
        if not all(isinstance(field, str) and 0 < len(field) <= 128 for field in fields):
            raise ValueError("not texts of 1 to 128 characters")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        unread = "unread-" + hashlib.sha256(text.encode()).hexdigest()[:16]
        example = '{"id": "<unique>", "action": "promote", "revision": "<hash>"}'
        return Request(
            unread, "unknown", problem=f"annotation {REQUEST_ANNOTATION} must be JSON like {example}"
        )
    return Request(id_, action, revision)


def _runtime(caches: Caches, endpoint: Endpoint, platform: Platform) -> tuple[LLMRuntimeSpec | None, str]:
    """The LLMRuntime as a new revision records it, or the reason why it cannot be read: a later version of
    the operator may have written fields that this one does not know. Images that the endpoint needs and the
    runtime lacks come from the platform."""
    if endpoint.spec is None:
        return None, ""
    manifest = caches.get(resources.RUNTIMES, "", endpoint.spec.runtime.name)
    if manifest is None:
        return None, ""
    try:
        runtime = LLMRuntimeSpec.model_validate(manifest.get("spec"))
    except ValidationError as error:
        return None, problems(error)
    if needs_image(endpoint.spec.model) and runtime.model_image is None:
        runtime = runtime.model_copy(update={"model_image": platform.model_image})
    if runtime.readiness is Readiness.GENERATION and runtime.probe_image is None:
        return runtime.model_copy(update={"probe_image": platform.probe_image}), ""
    return runtime, ""


def _other_paths(
    caches: Caches, endpoint: Endpoint, revisions: Iterable[Revision]
) -> dict[str, tuple[str, ...]]:
    """Paths of LLMRuntimes that kept revisions use and the spec does not name. A rollback may need one."""
    own = endpoint.spec.runtime.name if endpoint.spec is not None else None
    found: dict[str, tuple[str, ...]] = {}
    for name in {revision.inputs.runtime.name for revision in revisions} - {own}:
        manifest = caches.get(resources.RUNTIMES, "", name) or {}
        with contextlib.suppress(ValidationError):
            found[name] = LLMRuntimeSpec.model_validate(manifest.get("spec")).paths
    return found


def problems(error: ValidationError) -> str:
    """The errors with their field paths in one sentence; five at most are spelled out."""
    found = [
        f"{'.'.join(map(str, ('spec', *e['loc'])))}: {e['msg']}" for e in error.errors(include_input=False)
    ]
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _runtime_gone(caches: Caches, endpoint: Endpoint) -> str:
    """Why the LLMRuntime that the spec names does not exist; empty if it exists."""
    if endpoint.spec is None:
        return ""
    name = endpoint.spec.runtime.name
    if caches.missing(resources.RUNTIMES):
        return (
            "the cluster has no resource LLMRuntime (llmendpoint.io/v1alpha1): install the chart's CRDs again"
        )
    if caches.get(resources.RUNTIMES, "", name) is None:
        return f"LLMRuntime {name} does not exist: make it again, or correct spec.runtime.name"
    return ""


def _by_revision(endpoint: str, items: Iterable[Json]) -> dict[str, Json]:
    """Items by revision hash. A copy whose name is not the child's name is left out."""
    found = ((item["metadata"].get("labels", {}).get(REVISION_LABEL), item) for item in items)
    return {h: item for h, item in found if h and item["metadata"]["name"] == child_name(endpoint, h)}
