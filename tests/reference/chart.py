"""The chart's values as a page: meaning and default from values.yaml, type and rule from values.schema.json.

A value is whatever has no further `properties` in the schema, and whatever the schema describes as a whole. The comment
above it in values.yaml is its meaning; the comment above a group of values is an introduction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.reference.pages import table

CHART = Path(__file__).parents[2] / "charts" / "llmendpoint"
OF_HELM = frozenset({"global"})
"""Values that Helm sets by itself, and that values.yaml does not have."""

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, or a group of values, whose `default` is then None."""

    path: tuple[str, ...]
    text: str
    rule: str = ""
    default: str | None = None

    @property
    def name(self) -> str:
        return ".".join(self.path)


def chart_values() -> str:
    """The page's part: a section for each of the chart's first-level names."""
    entries = list(read_entries((CHART / "values.yaml").read_text(), read_schema()))
    lines = []
    alone = [entry for entry in entries if len(entry.path) == 1 and entry.default is not None]
    lines += ["## Values for the whole release\n", _rows(alone), ""]
    for group in (entry for entry in entries if len(entry.path) == 1 and entry.default is None):
        inside = [entry for entry in entries if entry.path[0] == group.name and entry is not group]
        lines += [f"## {group.name}\n", f"{group.text}\n"]
        lines += [
            f"`{entry.name}`: {entry.text}\n" for entry in inside if entry.default is None and entry.text
        ]
        lines += [_rows([entry for entry in inside if entry.default is not None]), ""]
    return "\n".join(lines)


def read_schema() -> Schema:
    schema: Schema = json.loads((CHART / "values.schema.json").read_text())
    return schema


def read_entries(values: str, schema: Schema) -> Iterator[Entry]:
    """In the order of values.yaml. Raises ValueError where a value has no comment, or schema and values differ in names."""
    root = yaml.compose(values, Loader=yaml.SafeLoader)
    yield from _entries(root, values.splitlines(), _Rules(schema), schema, ())


def _entries(
    node: Any, lines: list[str], rules: _Rules, schema: Schema, path: tuple[str, ...]
) -> Iterator[Entry]:
    properties = schema["properties"]
    there = {key.value for key, _ in node.value}
    if differing := (there ^ properties.keys()) - OF_HELM:
        raise ValueError(f"values.yaml or values.schema.json lacks {path}: {', '.join(sorted(differing))}")
    for key, value in node.value:
        below, inner = (*path, key.value), rules.resolved(properties[key.value])
        text = _comment_above(lines, key.start_mark.line)
        if "properties" in inner and "description" not in inner:
            yield Entry(below, text)
            yield from _entries(value, lines, rules, inner, below)
            continue
        if not text:
            raise ValueError(f"values.yaml: {'.'.join(below)} has no comment that says what it does")
        yield Entry(below, text, rules.said(inner), json.dumps(_plain(value), ensure_ascii=False))


def _comment_above(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found)


def _plain(node: Any) -> Any:
    return yaml.safe_load(yaml.serialize(node))


class _Rules:
    """What a schema asks of a value, in words."""

    def __init__(self, schema: Schema) -> None:
        self._definitions = schema["definitions"]

    def resolved(self, schema: Schema) -> Schema:
        found: Schema = self._definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        return found

    def said(self, schema: Schema) -> str:
        schema = self.resolved(schema)
        if "enum" in schema:
            *most, last = (
                f"`{value}`" for value in schema["enum"] if value is not False
            )  # a bare off is false in YAML
            return f"{', '.join(most)} or {last}"
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        kind, *others = kinds
        if kind == "array":
            inner = self.said(schema["items"])
            limit = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
            return f"list, each {inner}{limit}"
        if kind == "object" or (kind == "string" and "description" in schema):
            return str(schema["description"])
        return ", ".join([kind, *_range(schema)]) + "".join(f", or {other}" for other in others)


def _range(schema: Schema) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"{low} or more"


def _rows(entries: list[Entry]) -> str:
    return table(
        ("value", "type and rule", "default", "what it does"),
        ((f"`{entry.name}`", entry.rule, f"`{entry.default}`", entry.text) for entry in entries),
    )
