"""docs/reference/<kind>.md from the definitions: a section for each top-level field, and an anchor for each field.

The anchor of a field is its path in lower case without dots and brackets, `#rolloutobserveduration`: what GitHub and
MkDocs make of a heading. Fields with a short description share the table of their section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .schema import Schema

SHORT = 220
"""Characters of a description up to which a field is a row of a table."""
FEW = 3
"""Fields of an object up to which they are rows of its parent's table."""

_CHOICE = re.compile(r"(?<=[.]) (?=`[^`]+`: )")
"""Where a description begins to tell what one value means."""
_PLURALS = {"string": "strings", "integer": "integers", "object": "objects", "number": "numbers"}


def reference_page(crd: dict[str, Any], examples: Mapping[str, str]) -> str:
    """One kind's page as Markdown. `examples` are parts of a spec as YAML, by the path of the field they belong to."""
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    spec = schema["properties"]["spec"]
    lines = [f"# {names['kind']}", schema["description"]]
    lines.append(_lives(crd, version["name"]))
    lines.append(
        f"This page has every field. `kubectl explain {names['singular']}.spec` shows the same in a terminal. `make crds` writes "
        "the page from the operator's models: change a text there."
    )
    if "" in examples:
        head = f"apiVersion: {crd['spec']['group']}/{version['name']}\nkind: {names['kind']}\nmetadata:\n  name: example\n"
        lines += ["A small one:", f"```yaml\n{head}{_spec(examples[''])}```"]
    lines += ["## Spec", _escaped(spec["description"]), "\n".join(_overview(spec))]
    lines += _refusals([schema, spec])
    for name, sub in spec["properties"].items():
        lines += _section(sub, _below("", name, sub), name in spec.get("required", []), 2, examples)
    if "status" in schema["properties"]:
        lines += _status(schema["properties"]["status"])
    return "\n\n".join(lines) + "\n"


def _lives(crd: dict[str, Any], version: str) -> str:
    scope = "lives in a namespace" if crd["spec"]["scope"] == "Namespaced" else "belongs to the whole cluster"
    names = crd["spec"]["names"]
    short = " and ".join(f"`{name}`" for name in names.get("shortNames", []))
    said = f"API version `{crd['spec']['group']}/{version}`. The resource {scope}."
    return f"{said} Its short names are {short}." if short else said


def _overview(schema: Schema) -> Iterator[str]:
    yield "| field | what it sets |\n|---|---|"
    for name, sub in schema["properties"].items():
        first = _description(sub).split(". ")[0].rstrip(".")
        yield f"| [{name}](#{_anchor(name)}) | {_cell(first)} |"


def _status(schema: Schema) -> Iterator[str]:
    yield "## Status"
    yield (
        _escaped(schema["description"])
        + " The operator writes it; do not edit it. The reasons of the conditions, and what to do "
        "about them, are in [troubleshooting](../operate/troubleshooting.md)."
    )
    yield from _children(schema, "status", 3, {})


def _section(
    schema: Schema, path: str, required: bool, level: int, examples: Mapping[str, str]
) -> Iterator[str]:
    """A field with a heading of its own, and the fields below it."""
    yield f"{'#' * min(level, 4)} `{path}`"
    yield _facts(schema, required)
    first, *choices = _CHOICE.split(_description(schema))
    yield _linked(_escaped(first))
    if choices:
        yield "\n".join(f"- {_linked(_escaped(choice))}" for choice in choices)
    items = schema.get("items", {})
    yield from _refusals([schema, items])
    if _plain(path) in examples:
        yield "Example:"
        yield f"```yaml\n{_spec(examples[_plain(path)])}```"
    yield from _children(items or schema, path, level + 1, examples)


def _children(schema: Schema, path: str, level: int, examples: Mapping[str, str]) -> Iterator[str]:
    """Small fields in one table, then the others by themselves."""
    required = schema.get("required", [])
    fields = schema.get("properties", {})
    small = {name for name, sub in fields.items() if _small(sub) and _plain(f"{path}.{name}") not in examples}
    rows = [
        row
        for name, sub in fields.items()
        if name in small
        for row in _rows(sub, path, name, name in required)
    ]
    if rows:
        yield "\n".join(["| field | type | default | meaning |\n|---|---|---|---|", *rows])
    for name, sub in fields.items():
        if name not in small:
            yield from _section(sub, _below(path, name, sub), name in required, level, examples)


def _spec(example: str) -> str:
    return "spec:\n" + "".join(f"  {line}\n" for line in example.strip().splitlines())


def _below(path: str, name: str, schema: Schema) -> str:
    """A field's path; lists of objects end with [], as in what the API server says."""
    return f"{path}.{name}{'[]' if 'properties' in schema.get('items', {}) else ''}".removeprefix(".")


def _plain(path: str) -> str:
    """A field's path as the keys of the examples have it."""
    return path.replace("[]", "")


def _rows(schema: Schema, section: str, name: str, required: bool) -> Iterator[str]:
    anchor = f'<a id="{_anchor(f"{section}.{name}")}"></a>'
    default = "required" if required else _default(schema)
    shown = f"`{default}`" if default and not required else default
    meaning = _linked(_cell(_description(schema)))
    yield f"| {anchor}`{name}` | {_cell(_type(schema))} | {shown} | {meaning} |"
    for child, sub in schema.get("properties", {}).items():
        yield from _rows(sub, section, f"{name}.{child}", child in schema.get("required", []))


def _small(schema: Schema) -> bool:
    """Whether it is a row of a table."""
    items = schema.get("items", {})
    rules = [*schema.get("x-kubernetes-validations", []), *items.get("x-kubernetes-validations", [])]
    text = _description(schema)
    if rules or len(text) > SHORT or _CHOICE.search(text) or "properties" in items:
        return False
    children = schema.get("properties", {})
    return len(children) <= FEW and all(map(_small, children.values()))


def _facts(schema: Schema, required: bool) -> str:
    default = _default(schema)
    if required:
        return f"Type: {_escaped(_type(schema))}. Required."
    return f"Type: {_escaped(_type(schema))}. {f'Default: `{default}`.' if default else 'Optional.'}"


def _refusals(schemas: list[Schema]) -> Iterator[str]:
    messages = [item["message"] for schema in schemas for item in schema.get("x-kubernetes-validations", [])]
    if messages:
        yield (
            "Rule, in the words of the API server:"
            if len(messages) == 1
            else "Rules, in the words of the API server:"
        )
        yield "\n".join(f"- {_escaped(message)}" for message in messages)


def _description(schema: Schema) -> str:
    return str(schema.get("description") or schema.get("items", {}).get("description", ""))


def _default(schema: Schema) -> str:
    """As JSON; empty where there is none, or where the fields of an object have the same ones."""
    found = schema.get("default")
    children = schema.get("properties", {})
    if children and found is not None:
        found = {name: value for name, value in found.items() if children[name].get("default") != value}
    return json.dumps(found) if found not in (None, {}) else ""


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema["type"])
    if kind == "array":
        return f"list of {_many(schema['items'])}{_size(schema, 'Items', 'items')}{_unique(schema)}"
    if "additionalProperties" in schema:
        return f"map of {_many(schema['additionalProperties'])}{_size(schema, 'Properties', 'entries')}"
    if schema.get("format") == "date-time":
        return "time"
    pattern = f", matching `{schema['pattern']}`" if "pattern" in schema else ""
    return f"{kind}{_range(schema)}{_size(schema, 'Length', 'characters')}{pattern}"


def _many(schema: Schema) -> str:
    longest = f" (each at most {schema['maxLength']} characters)" if "maxLength" in schema else ""
    return _PLURALS[str(schema["type"])] + longest


def _unique(schema: Schema) -> str:
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        return f", each with its own `{'` and `'.join(keys)}`"
    return ", all different" if schema.get("x-kubernetes-list-type") == "set" else ""


def _size(schema: Schema, what: str, unit: str) -> str:
    low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    if high is None:
        return ""
    return f", {low} to {high} {unit}" if low else f", at most {high} {unit}"


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or high is None:
        return ""
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if above or below:
        return f", {'above' if above else 'from'} {low} and {'below' if below else 'up to'} {high}"
    return f", {low} to {high}"


def _anchor(path: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "", path.lower())


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is; what is in backticks is left alone."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return _escaped(text).replace("|", r"\|")


def _linked(text: str) -> str:
    """A page that a description names, as a link from docs/reference/."""
    return re.sub(r"docs/([\w/-]+\.md)", r"[\1](../\1)", text)
