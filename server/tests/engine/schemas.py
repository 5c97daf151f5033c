"""JSON schemas of growing difficulty. Each has bounds, so that every answer ends, and answers that jsonschema can check."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

FORMATS = ("date", "uuid", "ipv4")
ENDLESS = ("date-time", "time", "email", "hostname")
"""Formats, as numbers, that may go on without an end."""
PATTERNS = ("^[a-z]{2,8}$", "^(GET|PUT) /[a-z]{1,6}$", "^\\d{3}-\\d{4}$", "^[A-F0-9]{4,6}$")
LEAVES = 7


def make(number: int) -> Schema:
    """The `number`-th of them: 0 has one value, and each 100 more one level of nesting more."""
    chance = random.Random(number)
    schema = _object(chance, depth=number // 100, most=2 + number // 100)
    if number >= 300 and number % 10 == 0:
        schema["properties"]["tree"] = {"$ref": "#/$defs/node"}
        schema["required"].append("tree")
        schema["$defs"] = {"node": _node(chance)}
    return schema


def without_closing(schema: Any) -> Any:
    """As many clients write it. The engine closes such objects itself."""
    if isinstance(schema, list):
        return [without_closing(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_closing(one) for name, one in schema.items() if name != "additionalProperties"}


def _object(chance: random.Random, depth: int, most: int) -> Schema:
    names = [f"{chance.choice('abcdefg')}{place}" for place in range(chance.randint(1, most))]
    properties = {name: _value(chance, depth) for name in names}
    required = [name for name in names if chance.random() < 0.7]
    made: Schema = {"type": "object", "properties": properties, "required": required}
    # Others only where their number has a bound: none here.
    made["additionalProperties"] = False
    return made


def _node(chance: random.Random) -> Schema:
    """Recursive; a node without children ends it."""
    leaf = _leaf(chance)
    return {
        "type": "object",
        "properties": {
            "value": leaf,
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    }


def _value(chance: random.Random, depth: int) -> Schema:
    if depth <= 0:
        return _leaf(chance)
    kind = chance.randrange(5)
    if kind == 0:
        return _object(chance, depth - 1, 3)
    if kind == 1:
        low = chance.randint(0, 2)
        return {
            "type": "array",
            "items": _value(chance, depth - 1),
            "minItems": low,
            "maxItems": low + chance.randint(0, 2),
        }
    if kind == 2:
        return {"anyOf": [_value(chance, depth - 1), _leaf(chance), {"type": "null"}]}
    if kind == 3:
        first = {"const": "a"}, _value(chance, depth - 1)
        second = {"const": "b"}, _leaf(chance)
        return {"oneOf": [_tagged(*first), _tagged(*second)]}
    return {
        "type": "array",
        "prefixItems": [_leaf(chance), _value(chance, depth - 1)],
        "items": False,
        "minItems": 2,
    }


def _tagged(tag: Schema, value: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"tag": tag, "value": value},
        "required": ["tag", "value"],
        "additionalProperties": False,
    }


def _leaf(chance: random.Random) -> Schema:
    kind = chance.randrange(LEAVES)
    low = chance.randint(-50, 50)
    if kind == 0:
        return {"type": "integer", "minimum": low, "maximum": low + chance.randint(0, 200)}
    if kind == 1 and chance.random() < 0.9:
        return {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + chance.randint(2, 90)}
    if kind == 1:
        return {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + chance.randint(1, 9)}
    if kind == 2:
        shortest = chance.randint(0, 4)
        return {"type": "string", "minLength": shortest, "maxLength": shortest + chance.randint(1, 9)}
    if kind == 3:
        return {"enum": chance.sample(["red", "green", "é", 7, None, True, 'a "quote"', "line\nend"], 3)}
    if kind == 4:
        return {"type": "string", "format": chance.choice(FORMATS if chance.random() < 0.9 else ENDLESS)}
    if kind == 5:
        return {"type": "string", "pattern": chance.choice(PATTERNS)}
    return {"type": chance.choice(["boolean", "null"])}
