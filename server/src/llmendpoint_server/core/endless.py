"""References of a JSON schema that no value can finish: each value would have to hold another one of its kind, without an end. Pure.

`{"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}` is such a schema: JSON Schema allows it, no JSON text
follows it, and a model that is held to it writes until `max_tokens`. Only references make one, because a schema without them is a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

STEPS_MAX = 20_000
"""Schemas that are followed, some again: about 20 ms. Beyond it, and beyond the depth, a schema is taken for one that ends."""
DEPTH_MAX = 100


class _TooMuch(Exception):
    pass


def endless(schema: Any, target: Callable[[str], Any]) -> frozenset[str]:
    """The references within `schema` that never end. `target`: the schema that a reference leads to, None if it leads nowhere."""
    search = _Search(target)
    try:
        return search.endless(schema)
    except _TooMuch:
        return frozenset()


class _Search:
    def __init__(self, target: Callable[[str], Any]) -> None:
        self._target = target
        self._met: dict[str, None] = {}
        """references, in the order in which they were met"""
        self._end: set[str] = set()
        """those that have an end; each round finds more"""
        self._steps = 0

    def endless(self, schema: Any) -> frozenset[str]:
        self._meet(schema)
        before = -1
        while before != len(self._end):
            before = len(self._end)
            for reference in reversed(self._met):  # the deepest first: a chain takes one round
                if reference not in self._end and self._ends(self._target(reference)):
                    self._end.add(reference)
        return frozenset(self._met.keys() - self._end)

    def _meet(self, schema: Any) -> None:
        """All references that stand in it. What they lead to stands in it, too."""
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                if isinstance(reference := one.get("$ref"), str):
                    self._met[reference] = None
                waiting += one.values()
            elif isinstance(one, list):
                waiting += one

    def _ends(self, schema: Any, depth: int = 0) -> bool:
        self._count()
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return True
        return all(
            any(self._ends(one, depth + 1) for one in ways) if either else self._all_end(ways, depth)
            for either, ways in _conditions(schema)
        ) and ("$ref" not in schema or self._has_end(schema["$ref"]))

    def _all_end(self, schemas: list[Any], depth: int) -> bool:
        return all(self._ends(one, depth + 1) for one in schemas)

    def _has_end(self, reference: Any) -> bool:
        """What leads nowhere is refused elsewhere."""
        return not isinstance(reference, str) or reference in self._end or self._target(reference) is None

    def _count(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise _TooMuch


def _conditions(schema: dict[str, Any]) -> Iterator[tuple[bool, list[Any]]]:
    """What must end for it to end: one of the schemas (True), or all of them."""
    for name in ("anyOf", "oneOf"):
        if isinstance(ways := schema.get(name), list) and ways:
            yield True, ways
    if isinstance(parts := schema.get("allOf"), list):
        yield False, parts
    if "const" in schema or "enum" in schema:
        return
    match schema.get("type"):
        case "object" | ["object"]:
            yield False, _required(schema)
        case "array" | ["array"]:
            yield False, _first_items(schema)


def _required(schema: dict[str, Any]) -> list[Any]:
    names, own, others = (schema.get(name) for name in ("required", "properties", "additionalProperties"))
    own = own if isinstance(own, dict) else {}
    if schema.get("patternProperties"):
        others = None  # one of them may be meant
    return (
        [own.get(name, others) for name in names if isinstance(name, str)] if isinstance(names, list) else []
    )


def _first_items(schema: dict[str, Any]) -> list[Any]:
    """Those that an array of `minItems` has: each that has a place of its own, and one of the others."""
    least = schema.get("minItems")
    if not isinstance(least, int) or least < 1:
        return []
    first, others = schema.get("prefixItems"), schema.get("items")
    if isinstance(others, list):  # the older form
        first, others = others, schema.get("additionalItems")
    places = first if isinstance(first, list) else []
    return places[:least] + ([others] if least > len(places) else [])
