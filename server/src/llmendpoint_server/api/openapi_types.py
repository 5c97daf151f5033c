"""JSON schemas of the types that read bodies. msgspec's own `json.schema` cannot have a default of type Raw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]
PLACE = "#/components/schemas/"


class Components:
    """The schemas of all structs that were met, by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def add(self, kinds: Iterable[type[msgspec.Struct]]) -> None:
        for kind in kinds:
            self.of(inspect.type_info(kind))

    def of(self, kind: inspect.Type) -> Schema:
        """Raises TypeError for a kind that no body has yet."""
        match kind:
            case inspect.Metadata():
                return self.of(kind.type) | (kind.extra_json_schema or {})
            case inspect.AnyType() | inspect.RawType():
                return {}
            case inspect.NoneType():
                return {"type": "null"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.IntType() | inspect.FloatType():
                name = "integer" if isinstance(kind, inspect.IntType) else "number"
                return {
                    "type": name,
                    **_bounds(kind, minimum="ge", maximum="le", exclusiveMinimum="gt", exclusiveMaximum="lt"),
                }
            case inspect.StrType():
                return {
                    "type": "string",
                    **_bounds(kind, minLength="min_length", maxLength="max_length", pattern="pattern"),
                }
            case inspect.LiteralType():
                return {"enum": list(kind.values)}
            case _:
                return self._of_several(kind)

    def _of_several(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.ListType():
                bounds = _bounds(kind, minItems="min_length", maxItems="max_length")
                return {"type": "array", "items": self.of(kind.item_type), **bounds}
            case inspect.DictType():
                keys = self.of(kind.key_type)
                if keys.get("type") == "integer":  # in JSON a string of digits
                    keys = {"pattern": "^-?[0-9]+$"}
                bounds = _bounds(kind, minProperties="min_length", maxProperties="max_length")
                return {
                    "type": "object", "propertyNames": keys, "additionalProperties": self.of(kind.value_type), **bounds
                }  # fmt: skip
            case inspect.UnionType():
                return {"anyOf": [self.of(one) for one in kind.types]}
            case inspect.StructType():
                return self._of_struct(kind)
            case _:
                raise TypeError(f"{kind} has no schema here.")

    def _of_struct(self, kind: inspect.StructType) -> Schema:
        name = kind.cls.__name__
        if name not in self.schemas:
            self.schemas[name] = {}  # it may hold itself
            schema: Schema = {
                "type": "object",
                "properties": {field.encode_name: self.of(field.type) for field in kind.fields},
                "required": [field.encode_name for field in kind.fields if field.required],
            }
            if kind.forbid_unknown_fields:
                schema["additionalProperties"] = False
            self.schemas[name] = schema
        return {"$ref": PLACE + name}


def _bounds(kind: inspect.Type, **names: str) -> Schema:
    """The bounds that `kind` has, by their name in a schema."""
    found = {name: getattr(kind, attribute) for name, attribute in names.items()}
    return {name: value for name, value in found.items() if value is not None}
