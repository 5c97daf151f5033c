"""`spec.adapters`: LoRA adapters beside the model; `status.adapters`: which of them the replicas have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules

MOST_ADAPTERS = 64

ADAPTER_NAME_RULE = rule(
    "self.matches('^[a-z0-9]([-._a-z0-9]*[a-z0-9])?$')",
    "adapters: a name has a-z, 0-9, '-', '.' and '_', and begins and ends with a letter or digit; for example sql. Callers "
    "name the model <served name>:<adapter>",
)
ADAPTER_SOURCE_RULE = rule(
    "self.matches('^file:///.+') || self.matches('^pvc://[a-z0-9]([-a-z0-9]*[a-z0-9])?/.+$') || "
    "self.matches('^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?$') || "
    "self.matches('^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)*/?$')",
    "adapters: source must be hf://<organisation>/<name>[@<branch, tag or commit>], s3://<bucket>/<prefix>, "
    "pvc://<claim>/<path> or file:///<absolute path in the container>; for example hf://acme/sql-lora@v2 or "
    "pvc://adapters/sql",
)
ADAPTER_PARENT_RULE = rule(
    "!self.contains('/../') && !self.endsWith('/..')",
    "adapters: source must not contain '..'; write the path without it",
)
ADAPTERS_RULE = rule(
    "!has(self.adapters) || size(self.adapters) <= self.engine.maxAdapters",
    "adapters has more entries than engine.maxAdapters; raise engine.maxAdapters (a change makes a new revision), or remove "
    "adapters",
)

AdapterName = Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=rules(ADAPTER_NAME_RULE))]


class Adapter(ApiModel):
    """One LoRA adapter of the model."""

    name: AdapterName
    """Name of the adapter. Callers name the model `<served name>:<name>` or `<namespace>/<endpoint>:<name>`."""
    source: Annotated[
        str,
        Field(
            min_length=1, max_length=512, json_schema_extra=rules(ADAPTER_SOURCE_RULE, ADAPTER_PARENT_RULE)
        ),
    ]
    """Where the adapter comes from: a folder as peft writes it, with the weights as safetensors.
    `hf://<organisation>/<name>[@<branch>]`: a hub; name a commit, so that every replica loads the same files.
    `s3://<bucket>/<prefix>`: the files under a prefix of a bucket. `pvc://<claim>/<path>`: a PersistentVolumeClaim in
    the endpoint's namespace, mounted read-only; the first adapter on a claim makes a new revision.
    `file:///<path>`: a path in the container, on a volume of the LLMRuntime. The engine itself loads the adapter, without
    model.credentials: a hub or bucket must be readable without them."""


class AdapterStatus(ApiModel):
    """One adapter, and how many replicas have it."""

    name: Annotated[str, Field(max_length=63)]
    """Name of the adapter."""
    source: Annotated[str, Field(max_length=512)]
    """Where it comes from."""
    ready_replicas: int = 0
    """Number of ready replicas of the active revision that have loaded it."""
    message: Annotated[str, Field(max_length=512)] | None = None
    """Why a replica could not load it. The operator tries again, at most every 5 minutes. Not set while nothing is
    wrong."""
