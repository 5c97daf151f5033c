"""A Snapshot of one endpoint from the caches: no call to the API server."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from .api import LLMEndpointSpec, LLMRuntimeSpec, Readiness
from .core.allowed import BY_DEFAULT, Allowed
from .core.models.files import needs_image
from .core.names import REVISION_LABEL
from .core.neighbours import Neighbours
from .core.revision import parse_revision
from .core.snapshot import Endpoint, Refusal, Request, ScalerAddress, Snapshot
from .kube import resources
from .kube.caches import Caches

Json = dict[str, Any]

REQUEST_ANNOTATION = "llmendpoint.io/request"


def gather(
    caches: Caches,
    manifest: Json,
    refusal: Refusal | None,
    gateway_url: str | None,
    neighbours: Neighbours | None = None,
    probe_image: str | None = None,
    model_image: str | None = None,
    scaler_address: ScalerAddress | None = None,
    allowed: Allowed = BY_DEFAULT,
) -> Snapshot:
    """Everything about the endpoint `manifest`."""
    endpoint = parse_endpoint(manifest)
    namespace, name = endpoint.namespace, endpoint.name
    records = _by_revision(caches.children(resources.CONTROLLER_REVISIONS, namespace, name))
    parsed = {hash_: parse_revision(record) for hash_, record in records.items()}
    pods: dict[str, list[Json]] = defaultdict(list)
    for pod in caches.children(resources.PODS, namespace, name):
        pods[pod["metadata"].get("labels", {}).get(REVISION_LABEL, "")].append(pod)
    return Snapshot(
        endpoint=endpoint,
        runtime=_runtime(caches, endpoint, probe_image, model_image),
        records=records,
        revisions={hash_: revision for hash_, revision in parsed.items() if revision is not None},
        deployments=_by_revision(caches.children(resources.DEPLOYMENTS, namespace, name)),
        services={
            item["metadata"]["name"]: item for item in caches.children(resources.SERVICES, namespace, name)
        },
        service_account=caches.get(resources.SERVICE_ACCOUNTS, namespace, name),
        policies={
            kind.kind: item for kind in resources.POLICIES if (item := caches.get(kind, namespace, name))
        },
        scalers={
            (kind.api_version, kind.kind): item
            for kind in resources.SCALERS
            if (item := caches.get(kind, namespace, name))
        },
        scaler_address=scaler_address,
        allowed=allowed,
        keda_missing=caches.missing(resources.SCALED_OBJECTS),
        neighbours=neighbours,
        pods={hash_: tuple(found) for hash_, found in pods.items()},
        refusal=refusal,
        gateway_url=gateway_url,
    )


def parse_endpoint(manifest: Json) -> Endpoint:
    """An LLMEndpoint as stored; a spec that cannot be read is said to be so, and stops nothing else."""
    metadata = manifest["metadata"]
    spec, problem = None, ""
    try:
        spec = LLMEndpointSpec.model_validate(manifest.get("spec", {}))
    except ValidationError as error:
        problem = "; ".join(f"spec.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
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
        request=parse_request((metadata.get("annotations") or {}).get(REQUEST_ANNOTATION)),
    )


def parse_request(text: str | None) -> Request | None:
    """The request annotation; one that cannot be read gets an id from its text, so that it is answered once."""
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


def _runtime(
    caches: Caches, endpoint: Endpoint, probe_image: str | None, model_image: str | None
) -> LLMRuntimeSpec | None:
    """The runtime as a new revision records it, with the images of what stands beside the engine where it is needed."""
    if endpoint.spec is None:
        return None
    manifest = caches.get(resources.RUNTIMES, "", endpoint.spec.runtime.name)
    if manifest is None:
        return None
    runtime = LLMRuntimeSpec.model_validate(manifest["spec"])
    if needs_image(endpoint.spec.model) and runtime.model_image is None:
        runtime = runtime.model_copy(update={"model_image": model_image})
    if runtime.readiness is Readiness.GENERATION and runtime.probe_image is None:
        return runtime.model_copy(update={"probe_image": probe_image})
    return runtime


def _by_revision(items: Iterable[Json]) -> dict[str, Json]:
    found = ((item["metadata"].get("labels", {}).get(REVISION_LABEL), item) for item in items)
    return {hash_: item for hash_, item in found if hash_}
