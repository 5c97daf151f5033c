"""What is downloaded, by whom, and where the engine finds it.

| delivery | when | who downloads |
|---|---|---|
| DIRECT | embedded, file, pvc, oci; a public hf:// model without a cache | nobody, or the engine itself |
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
"""Environment variables by which a download finds another hub; the first that is there."""
PUBLIC_HUB = "https://huggingface.co"

VOLUME = "model-weights"
CACHE_PATH = "/models/cache"
FETCHED_PATH = "/models/fetched"
IMAGE_PATH = "/models/image"


class Delivery(StrEnum):
    """How the files come to a pod."""

    DIRECT = "Direct"
    JOB = "Job"
    POD = "Pod"


class Files(NamedTuple):
    """A model's files for good: `source` without a branch, `revision` what it was resolved to."""

    source: str
    revision: str
    allow_pickle: bool
    secret: str | None
    claim: str | None
    hub: str = ""
    """Where the source is asked for, when that is not where everybody asks."""

    @property
    def folder(self) -> str:
        """Its folder on the volume. Who has other credentials has another one: nobody gets a model from the cache that
        they could not download. What another hub gives under the same name is another model."""
        text = json.dumps([*self[:4], *([self.hub] if self.hub else [])], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def job_name(self) -> str:
        """Of the Job that downloads them to the claim; names the files where several Jobs do (sharing.py)."""
        return f"llm-model-{short_hash(self.folder, self.claim or '')}"


def delivery(model: ModelSpec) -> Delivery:
    """How this model's files come to a pod."""
    if not is_downloaded(model):
        return Delivery.DIRECT
    if model.cache is not None:
        return Delivery.JOB if model.cache.scope is CacheScope.SHARED else Delivery.POD
    plain = split_hub(model.source) is not None and model.credentials is None and not model.allow_pickle
    return Delivery.DIRECT if plain else Delivery.POD


def is_downloaded(model: ModelSpec) -> bool:
    """Whether the source is one whose content can change, and which a revision resolves."""
    return split_hub(model.source) is not None or model.source.startswith(S3)


def needs_image(model: ModelSpec) -> bool:
    """Whether the image of llmendpoint-model is run for this model."""
    return resolved_by_job(model) or delivery(model) is not Delivery.DIRECT


def resolved_by_job(model: ModelSpec) -> bool:
    """Whether a Job asks what the source is: it has the credentials, and knows S3. A public hub the operator asks."""
    return is_downloaded(model) and (model.source.startswith(S3) or model.credentials is not None)


def model_files(model: ModelSpec, revision: str, hub: str = "") -> Files:
    """Of a model that was resolved. `hub` as hub_of says."""
    found = split_hub(model.source)
    source = f"hf://{found.repository}" if found else model.source.rstrip("/")
    secret = model.credentials.secret_name if model.credentials else None
    claim = model.cache.claim_name if model.cache else None
    return Files(source, revision, model.allow_pickle, secret, claim, hub)


def hub_of(inputs: PodInputs, runtime: LLMRuntimeSpec) -> str:
    """The hub that the environment of who downloads names; empty for the public one."""
    names = S3_HUBS if inputs.model.source.startswith(S3) else HF_HUBS
    variables = (item for item in (*runtime.env, *inputs.runtime.env) if item.value)
    values = {item.name: item.value for item in variables if item.name in names}
    found = next((values[name] for name in names if name in values), "").rstrip("/")
    return "" if found == PUBLIC_HUB else found


def files_of_revision(revision: Revision) -> Files:
    """Of a recorded revision whose model was resolved."""
    return model_files(revision.inputs.model, revision.commit, revision_hub(revision))


def revision_hub(revision: Revision) -> str:
    """The hub in the name of a revision's folder: those of templates before 3 tell no hubs apart."""
    return hub_of(revision.inputs, revision.runtime) if revision.template_version >= 3 else ""


def engine_path(model: ModelSpec, revision: str, hub: str = "") -> str | None:
    """Where the engine finds the files; None where the source itself is what it is told."""
    if model.source.startswith(OCI):
        return IMAGE_PATH
    if delivery(model) is Delivery.DIRECT:
        return None
    return f"{CACHE_PATH if model.cache else FETCHED_PATH}/{model_files(model, revision, hub).folder}"


def resolve_job_name(endpoint_uid: str, revision_hash: str) -> str:
    """Of the Job that asks what a source is, for one revision of one endpoint."""
    return f"llm-resolve-{short_hash(endpoint_uid, revision_hash)}"


def short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
