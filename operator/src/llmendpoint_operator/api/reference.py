"""docs/reference/resources.md from the definitions: a table of fields for each kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .schema import Schema


def reference_page(crds: list[dict[str, Any]]) -> str:
    """The whole page as Markdown."""
    parts = [
        "# Reference\n",
        "Written by `make crds` from the operator's models; `kubectl explain llmendpoint.spec --recursive` shows the "
        "same in a terminal.\n",
    ]
    for crd in crds:
        parts += _kind(crd)
    return "\n".join(parts).rstrip() + "\n"


def _kind(crd: dict[str, Any]) -> Iterator[str]:
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    yield f"## {names['kind']}\n"
    yield schema["description"] + "\n"
    scope = "a namespace" if crd["spec"]["scope"] == "Namespaced" else "the cluster"
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", []))
    yield f"`{crd['spec']['group']}/{version['name']}`, lives in {scope}{f'; short names {short}' if short else ''}.\n"
    for part in ("spec", "status"):
        if part in schema["properties"]:
            yield f"### {names['kind']} {part}\n"
            yield "| field | type | default | meaning |\n|---|---|---|---|"
            yield from _rows(schema["properties"][part], part)
            yield ""
    found = list(_rules(schema))
    if found:
        yield f"### {names['kind']}: what is refused\n"
        yield from (f"- {message}" for message in found)
        yield ""


def _rows(schema: Schema, path: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, sub in schema.get("properties", {}).items():
        inner = sub.get("items", sub)
        shown = f"`{path}.{name}{'[]' if 'items' in sub else ''}`"
        default = _default(sub) if name not in required else "required"
        yield f"| {shown} | {_type(sub)} | {default} | {sub.get('description', inner.get('description', ''))} |"
        yield from _rows(inner, f"{path}.{name}{'[]' if 'items' in sub else ''}")


def _default(schema: Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") not in (None, {}) else ""


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema["type"])
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{kind}, {low} to {high}" if low is not None and high is not None else kind


def _rules(schema: Schema) -> Iterator[str]:
    for item in schema.get("x-kubernetes-validations", []):
        yield item["message"]
    for sub in schema.get("properties", {}).values():
        yield from _rules(sub)
    if "items" in schema:
        yield from _rules(schema["items"])
