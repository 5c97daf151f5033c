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
    "model.source may not contain '..'; write the path without it",
)
SERVED_NAME_RULE = rule(
    "self.all(n, n.matches('^[A-Za-z0-9][A-Za-z0-9._:-]*$'))",
    "model.servedNames may hold letters, digits and . _ : - only; '<namespace>/<name>' always works and need not be "
    "listed, and no other name may contain '/'",
)
_DOWNLOADED = "self.source.startsWith('hf://') || self.source.startsWith('s3://')"
CACHE_RULE = rule(
    f"!has(self.cache) || {_DOWNLOADED}",
    "model.cache is for what is downloaded, from hf:// or s3://; leave it out, for a model that lies in a volume or an "
    "image needs no copy",
)
CREDENTIALS_RULE = rule(
    f"!has(self.credentials) || {_DOWNLOADED}",
    "model.credentials are for what is downloaded, from hf:// or s3://; leave them out (registry credentials of an "
    "oci:// image are the imagePullSecrets of the endpoint's ServiceAccount)",
)
PICKLE_RULE = rule(
    f"!self.allowPickle || {_DOWNLOADED}",
    "model.allowPickle is about what is downloaded, from hf:// or s3://; leave it out",
)
CLAIM_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
    "model.cache.claimName must be the name of a PersistentVolumeClaim of the endpoint's namespace: a-z, 0-9, '-' and "
    "'.'; for example models",
)
SECRET_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
    "model.credentials.secretName must be the name of a Secret of the endpoint's namespace: a-z, 0-9, '-' and '.'; for "
    "example hub-token",
)


class CacheScope(StrEnum):
    """Who shares the volume of a cache."""

    SHARED = "Shared"
    NODE = "Node"


class ModelCache(ApiModel):
    """A volume on which a downloaded model stays, so that pods that start do not download it again."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253, json_schema_extra=rules(CLAIM_RULE))]
    """PersistentVolumeClaim of the endpoint's namespace, which several endpoints may name. It must be writable for user
    65532; most volumes are made so by the pods' fsGroup."""
    scope: CacheScope = CacheScope.SHARED
    """Shared: every node sees the same files (ReadWriteMany). A Job downloads once, before the first pod is made. Node:
    each node has files of its own (ReadWriteOnce, or a claim whose volume is local to each node). The first pod of a node
    downloads before its engine starts, and the others of that node wait for it. In both cases a Job deletes what no
    revision has used for the chart's models.cacheRetentionSeconds."""


class ModelCredentials(ApiModel):
    """Credentials of a hub or an object store. Only what downloads gets them, never the engine."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253, json_schema_extra=rules(SECRET_RULE))]
    """Secret of the endpoint's namespace. Its keys are environment variables of the downloader: HF_TOKEN, or
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, where needed, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL. The
    operator does not read it."""


class ModelSpec(ApiModel, json_schema_extra=rules(CACHE_RULE, CREDENTIALS_RULE, PICKLE_RULE)):
    """Which model is served, and under which names callers ask for it."""

    source: Annotated[
        str, Field(min_length=1, max_length=512, json_schema_extra=rules(SOURCE_RULE, PARENT_RULE))
    ]
    """Where the model lies: `embedded://<name>` is inside the server image, `file:///<path>` is a path in the
    container (from a volume of the runtime), `pvc://<claim>/<path>` is a PersistentVolumeClaim of the endpoint's
    namespace, mounted read-only. `hf://<organisation>/<name>[@<branch>]` is a model of a hub: the operator asks
    once for each revision which commit that is, and every pod of the revision loads that commit.
    `s3://<bucket>/<prefix>` are the files under a prefix of a bucket, as they are when the revision is made.
    `oci://<image>@sha256:<digest>` is an image or artifact with the model's files at its root, which the node mounts as
    a volume; nothing is downloaded by us."""
    served_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=128)], ...],
        Field(max_length=16, json_schema_extra=set_list() | rules(SERVED_NAME_RULE)),
    ] = ()
    """Bare model names under which the gateway serves this endpoint beside `<namespace>/<name>`. Default: the
    endpoint's name. A name that several endpoints claim belongs to the oldest of them."""
    cache: ModelCache | None = None
    """Where a downloaded model is kept. Absent: each pod downloads it when it starts."""
    credentials: ModelCredentials | None = None
    """Credentials for the source. Absent: it is public."""
    allow_pickle: bool = False
    """Download weights that are pickles (*.bin, *.pt, *.pth, *.ckpt, *.pkl) where a source has no safetensors and no
    GGUF. Whoever can write such a file runs code in the engine that loads it. The bundled engine loads safetensors
    only; this is for others."""


class ModelStatus(ApiModel):
    """The model of the revision that the spec asks for."""

    revision: Annotated[str, Field(max_length=128)] | None = None
    """What names the source's content for good: the commit of an hf:// source, a hash over names, ETags and sizes for
    s3://."""
    progress: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of the model that the cache holds, in steps of ten. Absent where there is no shared cache."""
