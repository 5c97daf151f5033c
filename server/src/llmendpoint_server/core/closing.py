"""JSON schemas whose objects have the properties that they name, and no others, unless they say so. Pure.

JSON Schema leaves an object open that does not say `additionalProperties`. A model that may add properties does, and no client wants
them; OpenAI's strict mode and vLLM's default backend close such an object. Closed is an object that names `properties` or
`patternProperties`. One that names none, such as `{"type": "object"}`, is any object.

Schemas that hold together (`allOf`; `anyOf`, `oneOf` or `$ref` beside properties) may not be closed one by one, because each would forbid
what the others name. So what surrounds them is closed, with the names of all of them. A `$ref` among them gets a copy of its target that is
open, because the target itself is closed for those who refer to it alone.

A reference that no value can finish becomes `false`: then llguidance leaves out what may be left out, and refuses the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmendpoint_server.core.endless import endless
from llmendpoint_server.errors import InvalidRequest

DEPTH_MAX = 100
"""Deeper schemas stay as they are; llguidance takes none of them."""
ADDED_MAX = 20_000
"""Names and nodes that are added at most: n schemas that each join n others have n² names."""
STEPS_MAX = 20_000
"""References that are followed at most, to see whether they lead to themselves."""
COPY = "llmendpoint.open."

LISTS = ("prefixItems", "items")
MAPS = ("properties", "patternProperties", "$defs", "definitions")
SINGLE = ("items", "additionalProperties", "contains", "additionalItems", "propertyNames")
OWN = ("properties", "patternProperties", "required", "additionalProperties")
"""What a schema says itself of an object's properties."""
EITHER = ("anyOf", "oneOf")

Schema = Mapping[str, Any]


def closed(schema: Any) -> Any:
    """`schema` is not changed. Raises InvalidRequest if too much would have to be added."""
    return _Closing(schema).whole() if isinstance(schema, dict) else schema


class _Closing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._copies: dict[str, str] = {}
        """of targets, by reference: the name of the open copy"""
        self._made: dict[str, Any] = {}
        self._added = self._steps = 0
        self._endless = endless(root, self._target)

    def whole(self) -> Any:
        made = self._walk(self._root, 0, joined=False)
        if made is False:
            raise InvalidRequest(
                "No value can finish it: each would have to hold another one, without an end."
            )
        if self._made:
            definitions = made.get("$defs", {})
            if isinstance(definitions, dict):
                return made | {"$defs": definitions | self._made}
        return made

    def _walk(self, schema: Any, depth: int, *, joined: bool) -> Any:
        """`joined`: it holds together with another one."""
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return schema
        made = dict(schema)
        for name in MAPS:
            if isinstance(value := schema.get(name), dict):
                made[name] = {key: self._walk(one, depth + 1, joined=False) for key, one in value.items()}
        for name in LISTS:
            if isinstance(value := schema.get(name), list):
                made[name] = [self._walk(one, depth + 1, joined=False) for one in value]
        for name in SINGLE:
            if isinstance(value := schema.get(name), dict):
                made[name] = self._walk(value, depth + 1, joined=False)
        if isinstance(schema.get("$ref"), str) and self._leads_to_itself(schema, frozenset()):
            raise InvalidRequest(
                f"$ref {schema['$ref'][:100]!r} leads to itself alone, so that no text follows it."
            )
        if isinstance(reference := schema.get("$ref"), str) and reference in self._endless:
            return False
        joins = _joins(schema)
        for name in ("allOf", *EITHER):
            if isinstance(value := schema.get(name), list):
                made[name] = [self._walk(one, depth + 1, joined=joined or joins) for one in value]
        if (joined or joins) and isinstance(reference := schema.get("$ref"), str):
            made["$ref"] = self._open_copy(reference, depth)
        return made if joined else self._close(schema, made, joins=joins)

    def _open_copy(self, reference: str, depth: int) -> str:
        target = self._target(reference)
        if not isinstance(target, dict) or not isinstance(self._root.get("$defs", {}), dict):
            return reference
        if reference not in self._copies:
            self._copies[reference] = name = f"{COPY}{len(self._copies)}"
            self._made[name] = self._walk(target, depth + 1, joined=True)
            self._count(_size(target))
        return f"#/$defs/{self._copies[reference]}"

    def _close(self, schema: Schema, made: dict[str, Any], *, joins: bool) -> dict[str, Any]:
        if "additionalProperties" in schema:
            return made
        if not joins:
            own = [schema]
        else:
            own = list(self._together(schema, set()))
            if any("additionalProperties" in one or "patternProperties" in one for one in own):
                return made
        names = {name: True for one in own for name in _names(one, "properties")}
        if not any(isinstance(one.get(name), dict) for one in own for name in MAPS[:2]):
            return made
        patterns = bool(schema.get("patternProperties"))
        if not patterns and any(name not in names for one in own for name in _required(one)):
            return made
        made["additionalProperties"] = False
        if joins:
            self._count(len(names))
            made["properties"] = names | made.get("properties", {})
        return made

    def _together(self, schema: Schema, seen: set[str], depth: int = 0) -> Iterator[Schema]:
        """It and all schemas that hold together with it."""
        self._count(1)
        yield schema
        if depth > DEPTH_MAX:
            return
        for name in ("allOf", *EITHER):
            for one in schema[name] if isinstance(schema.get(name), list) else ():
                if isinstance(one, dict):
                    yield from self._together(one, seen, depth + 1)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            target = self._target(reference)
            if isinstance(target, dict):
                yield from self._together(target, seen, depth + 1)

    def _leads_to_itself(self, schema: Any, trail: frozenset[str], depth: int = 0) -> bool:
        """Whether nothing but references comes of it. `trail`: those that led here. Where that is too much work it says no."""
        self._steps += 1
        if not isinstance(schema, dict) or self._steps > STEPS_MAX or depth > DEPTH_MAX:
            return False

        def leads(one: Any, trail: frozenset[str] = trail) -> bool:
            return self._leads_to_itself(one, trail, depth + 1)

        reference, all_of = schema.get("$ref"), schema.get("allOf")
        if isinstance(reference, str) and (
            reference in trail or leads(self._target(reference), trail | {reference})
        ):
            return True
        if isinstance(all_of, list) and any(map(leads, all_of)):
            return True
        ways = [schema[name] for name in EITHER if isinstance(schema.get(name), list) and schema[name]]
        return any(all(map(leads, way)) for way in ways)

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, dict) and step in found:
                found = found[step]
            else:
                return None
        return found

    def _count(self, added: int) -> None:
        self._added += added
        if self._added > ADDED_MAX:
            raise InvalidRequest(
                "The JSON schema joins too many schemas by allOf, anyOf, oneOf and $ref. Write their properties together, or say "
                "additionalProperties in each."
            )


def _joins(schema: Schema) -> bool:
    """Whether what it holds or refers to holds together, with its own properties or with one another."""
    parts = sum(name in schema for name in ("allOf", *EITHER, "$ref"))
    several = isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1
    return parts > 1 or several or (parts == 1 and any(name in schema for name in OWN))


def _names(schema: Schema, keyword: str) -> Iterator[str]:
    value = schema.get(keyword)
    if isinstance(value, dict):
        yield from value


def _required(schema: Schema) -> Iterator[str]:
    value = schema.get("required")
    if isinstance(value, list):
        yield from (name for name in value if isinstance(name, str))


def _size(value: Any) -> int:
    """Nodes, counted without recursion."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return count
