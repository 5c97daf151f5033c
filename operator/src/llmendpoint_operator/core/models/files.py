"""What is downloaded, who downloads it, and where the engine finds it.

| delivery | when | who downloads |
|---|---|---|
| DIRECT | embedded, file, pvc, oci; a public hf:// model without a cache | no download, or the engine itself |
| JOB | cache.scope: Shared | one Job for each claim, source, revision and credentials |
| POD | cache.scope: Node; s3:// or with credentials, without a cache | an init container of each pod |
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import NamedTuple

from ...api import CacheScope, LLMRuntimeSpec, ModelSpec, PodInputs
from ..pods.revision import Revision
from .identity import split_hub

S3, OCI = "s3://", "oci://"
HF_HUBS, S3_HUBS = ("HF_ENDPOINT",), ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables that name another hub for a download; the first one that is set counts."""
PUBLIC_HUB = "https://huggingface.co"

VOLUME = "model-weights"
CACHE_PATH = "/models/cache"
FETCHED_PATH = "/models/fetched"
IMAGE_PATH = "/models/image"


class Delivery(StrEnum):
    """How the files reach a pod."""

    DIRECT = "Direct"
    JOB = "Job"
    POD = "Pod"


class Files(NamedTuple):
    """Files that never change: `source` without a branch, at the `revision` that it was resolved to."""

    source: str
    revision: str
    allow_pickle: bool
    secret: str | None
    claim: str | None
    hub: str = ""
    """The hub to download from; empty for the public one."""

    @property
    def folder(self) -> str:
        """The folder on the volume. Each set of credentials has a folder of its own, so that no endpoint
        reads a model from the cache that it could not download. Another hub's model of that name is another
        one."""
        text = json.dumps([*self[:4], *([self.hub] if self.hub else [])], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def job_name(self) -> str:
        """Name of the Job that downloads the files to the claim. With several Jobs (sharing.py) it names the
        files."""
        return f"llm-model-{short_hash(self.folder, self.claim or '')}"


def delivery(model: ModelSpec) -> Delivery:
    """How this model's files reach a pod."""
    if not is_downloaded(model):
        return Delivery.DIRECT
    if model.cache is not None:
        return Delivery.JOB if model.cache.scope is CacheScope.SHARED else Delivery.POD
    plain = split_hub(model.source) is not None and model.credentials is None and not model.allow_pickle
    return Delivery.DIRECT if plain else Delivery.POD


def is_downloaded(model: ModelSpec) -> bool:
    """Whether the source's content can change, so that a revision must resolve it."""
    return split_hub(model.source) is not None or model.source.startswith(S3)


def needs_image(model: ModelSpec) -> bool:
    """Whether this model needs a container of llmendpoint-model."""
    return resolved_by_job(model) or delivery(model) is not Delivery.DIRECT


def resolved_by_job(model: ModelSpec) -> bool:
    """Whether a Job resolves the source: it needs credentials or S3. The operator itself asks a public
    hub."""
    return is_downloaded(model) and (model.source.startswith(S3) or model.credentials is not None)


def model_files(model: ModelSpec, revision: str, hub: str = "") -> Files:
    """The files of a resolved model. `hub`: the result of hub_of."""
    found = split_hub(model.source)
    source = f"hf://{found.repository}" if found else model.source.rstrip("/")
    secret = model.credentials.secret_name if model.credentials else None
    claim = model.cache.claim_name if model.cache else None
    return Files(source, revision, model.allow_pickle, secret, claim, hub)


def hub_of(inputs: PodInputs, runtime: LLMRuntimeSpec) -> str:
    """The hub that the downloader's environment names; empty for the public one."""
    names = S3_HUBS if inputs.model.source.startswith(S3) else HF_HUBS
    variables = (item for item in (*runtime.env, *inputs.runtime.env) if item.value)
    values = {item.name: item.value for item in variables if item.name in names}
    found = next((values[name] for name in names if name in values), "").rstrip("/")
    return "" if found == PUBLIC_HUB else found


def files_of_revision(revision: Revision) -> Files:
    """The files of a recorded revision whose model was resolved."""
    return model_files(revision.inputs.model, revision.commit, revision_hub(revision))


def revision_hub(revision: Revision) -> str:
    """The hub that is part of the folder's name. Templates before 3 do not distinguish hubs."""
    return hub_of(revision.inputs, revision.runtime) if revision.template_version >= 3 else ""


def engine_path(model: ModelSpec, revision: str, hub: str = "") -> str | None:
    """The folder in which the engine finds the files; None if the engine gets the source itself."""
    if model.source.startswith(OCI):
        return IMAGE_PATH
    if delivery(model) is Delivery.DIRECT:
        return None
    return f"{CACHE_PATH if model.cache else FETCHED_PATH}/{model_files(model, revision, hub).folder}"


def resolve_job_name(endpoint_uid: str, revision_hash: str) -> str:
    """Name of the Job that resolves the source for one revision of one endpoint."""
    return f"llm-resolve-{short_hash(endpoint_uid, revision_hash)}"


def short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
