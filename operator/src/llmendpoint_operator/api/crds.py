"""The CustomResourceDefinitions, assembled around the schemas of the models."""

from __future__ import annotations

from typing import Any

from .base import rules
from .llmendpoint import NAME_RULE, LLMEndpointSpec, LLMEndpointStatus
from .llmkey import LLMKeySpec
from .llmruntime import LLMRuntimeSpec
from .schema import Schema, structural_schema

GROUP = "llmendpoint.io"
VERSION = "v1alpha1"

ENDPOINT_COLUMNS = (
    (
        "Ready",
        "string",
        '.status.conditions[?(@.type=="Ready")].status',
        "Whether the endpoint answers requests",
        0,
    ),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why, in one word", 0),
    ("Replicas", "string", ".status.readyReplicas", "Number of ready replicas of the active revision", 0),
    ("Revision", "string", ".status.activeRevision", "The revision that gets requests", 0),
    ("URL", "string", ".status.url", "Base URL for an OpenAI SDK", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    ("Model", "string", ".spec.model.source", "Where the model comes from", 1),
    (
        "Message",
        "string",
        '.status.conditions[?(@.type=="Degraded")].message',
        "What is wrong, if anything is",
        1,
    ),
)
RUNTIME_COLUMNS = (
    ("Image", "string", ".spec.image", "Container image", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
)
KEY_COLUMNS = (
    ("ID", "string", ".spec.id", "The part of the key that names it", 0),
    # A column of type date would show a time that is to come as <invalid>.
    ("Expires", "string", ".spec.expires", "When the key will be refused", 0),
    ("Disabled", "boolean", ".spec.disabled", "Whether the key is refused now", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    ("Grants", "string", ".spec.grants", "Endpoints that the key may use", 1),
)


def _columns(rows: tuple[tuple[str, str, str, str, int], ...]) -> list[dict[str, Any]]:
    columns = []
    for name, kind, path, description, priority in rows:
        column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
        if description:
            column["description"] = description
        if priority:
            column["priority"] = priority
        columns.append(column)
    return columns


def _object(description: str, properties: Schema, **extra: Any) -> Schema:
    standard: Schema = {
        "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": standard | properties,
        **extra,
    }


def _definition(kind: str, scope: str, short: list[str], version: dict[str, Any]) -> dict[str, Any]:
    plural = kind.lower() + "s"
    names: dict[str, Any] = {
        "kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(),
    }  # fmt: skip
    if short:
        names["shortNames"] = short
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": scope, "versions": [version]},
    }


def llmendpoint_crd() -> dict[str, Any]:
    """The definition of LLMEndpoint."""
    schema = _object(
        "A large language model that identical replicas serve behind one OpenAI-compatible URL.",
        {"spec": structural_schema(LLMEndpointSpec), "status": structural_schema(LLMEndpointStatus)},
        **rules(NAME_RULE),
    )
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": VERSION, "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": _columns(ENDPOINT_COLUMNS),
    }  # fmt: skip
    return _definition("LLMEndpoint", "Namespaced", ["llm", "llmep"], version)


def llmruntime_crd() -> dict[str, Any]:
    """The definition of LLMRuntime."""
    schema = _object(
        "How to run one engine. A change applies to new revisions only; running pods stay as they are.",
        {"spec": structural_schema(LLMRuntimeSpec)},
    )
    version = {
        "name": VERSION, "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": _columns(RUNTIME_COLUMNS),
    }  # fmt: skip
    return _definition("LLMRuntime", "Cluster", [], version)


def llmkey_crd() -> dict[str, Any]:
    """The definition of LLMKey. It has no status: gateways only read keys."""
    schema = _object(
        "A key that callers send to the gateway, and the endpoints that it may use. It has a hash of the key and nothing "
        "secret, so it may be kept in Git. `kubectl llm keys create` makes one.",
        {"spec": structural_schema(LLMKeySpec)},
    )
    version = {
        "name": VERSION, "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": _columns(KEY_COLUMNS),
    }  # fmt: skip
    return _definition("LLMKey", "Namespaced", [], version)


def all_crds() -> dict[str, dict[str, Any]]:
    """File name to definition."""
    crds = (llmendpoint_crd(), llmruntime_crd(), llmkey_crd())
    return {f"{crd['metadata']['name']}.yaml": crd for crd in crds}
