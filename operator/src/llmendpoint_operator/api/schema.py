"""From pydantic's JSON schema to the structural schema that a CustomResourceDefinition takes.

They differ in what the API server refuses: references, `anyOf … null`, numeric exclusive bounds,
`additionalProperties: false`; and in what it needs: a default on each parent whose children have defaults (defaults
are filled in from the top), and a bound on everything that a CEL rule may walk over.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ..errors import SchemaError

Schema = dict[str, Any]

_KEPT = (
    "type", "description", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties", "minProperties", "multipleOf", "required",
)  # fmt: skip
_DROPPED = {
    "title",
    "$defs",
    "default",
    "properties",
    "items",
    "additionalProperties",
    "$ref",
    "anyOf",
    "allOf",
    "const",
}
_INT_OR_STRING: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model; raises SchemaError on a shape that has none."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), model.__name__)


def _resolve(raw: Schema, defs: Schema, path: str) -> tuple[Schema, bool]:
    """Follow references and take `null` out of a union: (schema, whether null was there)."""
    nullable = False
    if "anyOf" in raw:
        kinds = [kind for kind in raw["anyOf"] if kind.get("type") != "null"]
        nullable = len(kinds) < len(raw["anyOf"])
        if len(kinds) != 1:
            raise SchemaError(f"{path}: a union of {len(kinds)} types is not structural; use one type")
        raw = {**kinds[0], **{key: value for key, value in raw.items() if key != "anyOf"}}
    if "$ref" in raw:
        target = defs[raw["$ref"].removeprefix("#/$defs/")]
        raw = {**target, **{key: value for key, value in raw.items() if key != "$ref"}}
    return raw, nullable


def _convert(raw: Schema, defs: Schema, path: str) -> Schema:
    raw, nullable = _resolve(raw, defs, path)
    out: Schema = {key: raw[key] for key in _KEPT if key in raw}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "const" in raw:
        out["enum"] = [raw["const"]]
    _convert_bounds(raw, out)
    for key, value in raw.items():
        if key.startswith("x-kubernetes-"):
            out[key] = value
        elif key not in _DROPPED and key not in _KEPT and not key.startswith("exclusive"):
            raise SchemaError(f"{path}: {key!r} has no place in a structural schema")
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out.update(_INT_OR_STRING)
    _convert_children(raw, out, defs, path)
    _convert_default(raw, out, nullable)
    return out


def _convert_bounds(raw: Schema, out: Schema) -> None:
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in raw:
            out[inclusive], out[exclusive] = raw[exclusive], True


def _convert_children(raw: Schema, out: Schema, defs: Schema, path: str) -> None:
    if "properties" in raw:
        out["properties"] = {
            name: _convert(sub, defs, f"{path}.{name}") for name, sub in raw["properties"].items()
        }
    elif isinstance(raw.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(raw["additionalProperties"], defs, f"{path}[*]")
    if "items" in raw:
        out["items"] = _convert(raw["items"], defs, f"{path}[]")
        out["items"].pop("default", None)


def _convert_default(raw: Schema, out: Schema, nullable: bool) -> None:
    """Objects get a default so that their children's defaults apply; empty lists, maps and strings get none."""
    default = raw.get("default")
    if "properties" in out and "default" in raw and not nullable and default is not None:
        out["default"] = _object_default(default, out)
    elif default not in (None, [], (), {}, "") and "default" in raw:
        out["default"] = default


def _object_default(default: Schema, out: Schema) -> Schema:
    """What the children's own defaults do not give. The API server checks a default against the object's rules before
    it fills in the children's: an object with rules spells out its plain fields."""
    found: Schema = {}
    for name, value in default.items():
        child = out["properties"][name]
        if value in (None, [], {}):
            continue
        if isinstance(value, dict) and "properties" in child:
            inner = _object_default(value, {**child, "x-kubernetes-validations": []})
            found |= {name: inner} if inner else {}
        elif out.get("x-kubernetes-validations") or child.get("default") != value:
            found[name] = value
    return found


def lint(schema: Schema, path: str = "") -> list[str]:
    """What the API server would refuse or be unable to bound, as sentences that name the field."""
    found: list[str] = []
    refused = ("$ref", "oneOf", "allOf", "not", "title", "const", "definitions")
    found += [f"{path}: {word} is not structural" for word in refused if word in schema]
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        found.append(f"{path}: anyOf is only taken for int-or-string")
    bounds = [
        word
        for word in ("exclusiveMinimum", "exclusiveMaximum")
        if not isinstance(schema.get(word, True), bool)
    ]
    found += [f"{path}: {word} must be a boolean beside the bound" for word in bounds]
    if "type" not in schema and not schema.get("x-kubernetes-int-or-string"):
        found.append(f"{path}: type is missing")
    found += _lint_bounds(schema, path)
    for name, sub in schema.get("properties", {}).items():
        found += lint(sub, f"{path}.{name}") + _lint_parent(sub, f"{path}.{name}")
        if "default" in sub and name in schema.get("required", []):
            found.append(f"{path}.{name}: required and a default exclude each other")
    for child in ("items", "additionalProperties"):
        if child in schema:
            found += lint(schema[child], f"{path}[]")
    return found


def _lint_bounds(schema: Schema, path: str) -> list[str]:
    found: list[str] = []
    kind = schema.get("type")
    bounded_text = "maxLength" in schema or "enum" in schema or schema.get("format") == "date-time"
    if (kind == "string" or schema.get("x-kubernetes-int-or-string")) and not bounded_text:
        found.append(f"{path}: a string needs maxLength")
    if kind == "array" and "maxItems" not in schema:
        found.append(f"{path}: a list needs maxItems")
    if kind == "object" and "additionalProperties" in schema and "maxProperties" not in schema:
        found.append(f"{path}: a map needs maxProperties")
    return found


def _lint_parent(schema: Schema, path: str) -> list[str]:
    """A property's own default has an effect only when its parent is there."""
    defaulted = [name for name, sub in schema.get("properties", {}).items() if "default" in sub]
    if not defaulted or schema.get("required") or "default" in schema:
        return []
    return [f"{path}: needs `default: {{}}`, or the defaults of {', '.join(defaulted)} are never filled in"]
