"""`spec.model`: which model is served, where it comes from, and where it is kept; `status.model`: what it was."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules, set_list

SOURCE_RULE = rule(
    "self.matches('^embedded://[a-z0-9][a-z0-9-]*$') || self.matches('^file:///.+') || "
    "self.matches('^pvc://[a-z0-9]([-a-z0-9]*[a-z0-9])?(/.*)?$') || "
    "self.matches('^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?$') || "
    "self.matches('^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)*/?$') || "
    "self.matches('^oci://[^@ ]+@sha256:[a-f0-9]{64}$')",
    "model.source must be embedded://<name> (a model inside the server image), file:///<absolute path in the "
    "container>, pvc://<claim>/<path>, hf://<organisation>/<name>[@<branch, tag or commit>], s3://<bucket>/<prefix> or "
    "oci://<image>@sha256:<64 hexadecimal digits>; for example embedded://demo, pvc://models/qwen3-8b, "
    "hf://Qwen/Qwen3-8B@main or s3://models/qwen3-8b",
)
PARENT_RULE = rule(
    "!self.contains('/../') && !self.endsWith('/..')",
    "model.source must not contain '..'; write the path without it",
)
SERVED_NAME_RULE = rule(
    "self.all(n, n.matches('^[A-Za-z0-9][A-Za-z0-9._:-]*$'))",
    "model.servedNames must contain only letters, digits and . _ : - and begin with a letter or digit; leave out "
    "'<namespace>/<name>', because it always works and no other name may contain '/'",
)
_DOWNLOADED = "self.source.startsWith('hf://') || self.source.startsWith('s3://')"
CACHE_RULE = rule(
    f"!has(self.cache) || {_DOWNLOADED}",
    "model.cache needs a source that is downloaded (hf:// or s3://); leave it out, because a model in a volume or "
    "an image needs no copy",
)
CREDENTIALS_RULE = rule(
    f"!has(self.credentials) || {_DOWNLOADED}",
    "model.credentials need a source that is downloaded (hf:// or s3://); leave them out. For an oci:// image, "
    "write registry credentials into the imagePullSecrets of the endpoint's ServiceAccount",
)
PICKLE_RULE = rule(
    f"!self.allowPickle || {_DOWNLOADED}",
    "model.allowPickle needs a source that is downloaded (hf:// or s3://); leave it out",
)
CLAIM_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
    "model.cache.claimName must be the name of a PersistentVolumeClaim in the endpoint's namespace: a-z, 0-9, '-' "
    "and '.'; for example models",
)
SECRET_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
    "model.credentials.secretName must be the name of a Secret in the endpoint's namespace: a-z, 0-9, '-' and "
    "'.'; for example hub-token",
)


class CacheScope(StrEnum):
    """Who shares the files of a cache."""

    SHARED = "Shared"
    NODE = "Node"


class ModelCache(ApiModel):
    """A volume that keeps a downloaded model, so that new pods do not download it again."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253, json_schema_extra=rules(CLAIM_RULE))]
    """Name of a PersistentVolumeClaim in the endpoint's namespace. Several endpoints may name the same claim. User
    65532 must be able to write to it; for most volumes the fsGroup of the pods ensures this."""
    scope: CacheScope = CacheScope.SHARED
    """Who shares the files. In both cases a Job deletes what no revision has used for the chart value
    models.cacheRetentionSeconds. `Shared`: all nodes see the same files (ReadWriteMany). A Job downloads the model
    once, before the operator makes the first pod. `Node`: each node has its own files (ReadWriteOnce, or a claim
    whose volume is local to each node). The first pod of a node downloads the model before its engine starts; the
    other pods of that node wait for it."""


class ModelCredentials(ApiModel):
    """Credentials of a hub or an object store. The engine never gets them."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253, json_schema_extra=rules(SECRET_RULE))]
    """Name of a Secret in the endpoint's namespace. Its keys become environment variables of the model downloader:
    HF_TOKEN, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and, if needed, AWS_SESSION_TOKEN, AWS_REGION and
    AWS_ENDPOINT_URL. The operator does not read the Secret."""


class ModelSpec(ApiModel, json_schema_extra=rules(CACHE_RULE, CREDENTIALS_RULE, PICKLE_RULE)):
    """Which model is served, and under which names."""

    source: Annotated[
        str, Field(min_length=1, max_length=512, json_schema_extra=rules(SOURCE_RULE, PARENT_RULE))
    ]
    """Where the model comes from. `embedded://<name>`: the server image itself. `file:///<path>`: a path in the
    container, on a volume of the LLMRuntime. `pvc://<claim>/<path>`: a PersistentVolumeClaim in the endpoint's
    namespace, mounted read-only. `hf://<organisation>/<name>[@<branch>]`: a model of a hub. The operator looks up
    the commit once for each revision, and every pod of the revision loads that commit. `s3://<bucket>/<prefix>`:
    the files under a prefix of a bucket, as they are when the revision is made. `oci://<image>@sha256:<digest>`: an
    image or artifact with the files of the model at its root. The node mounts it as a volume, so nothing is
    downloaded into the pod."""
    served_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=128)], ...],
        Field(max_length=16, json_schema_extra=set_list() | rules(SERVED_NAME_RULE)),
    ] = ()
    """More names under which the gateway serves this endpoint, beside `<namespace>/<name>`. If not set, the name of
    the endpoint. If several endpoints claim a name, it belongs to the oldest of them."""
    cache: ModelCache | None = None
    """Volume that keeps a downloaded model. If not set, each pod downloads the model when it starts."""
    credentials: ModelCredentials | None = None
    """Credentials for the source. The engine never gets them. If not set, the source must be public."""
    allow_pickle: bool = False
    """Accept weights in pickle files (*.bin, *.pt, *.pth, *.ckpt, *.pkl) if the source has no safetensors and no
    GGUF files. Whoever can write such a file can run code in the engine that loads it. The bundled engine loads
    safetensors only; this field is for other engines."""


class ModelStatus(ApiModel):
    """The model of the revision that the spec describes."""

    revision: Annotated[str, Field(max_length=128)] | None = None
    """What names the content of the source exactly: the commit for hf://, a hash over names, ETags and sizes for
    s3://."""
    progress: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of the model that the cache holds, in steps of ten. Only with a shared cache."""
