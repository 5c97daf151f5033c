"""Rules for arguments that stand one by one, in the forms that have no JSON object for them.

A schema can be held in such a form if it is a list of `properties`, and each of them can: a string as raw text by its values, its length or a
whole pattern, anything else as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmendpoint_server import limits
from llmendpoint_server.api.tools.frames import IS_TEXT, KEY, Frame, Parameters
from llmendpoint_server.api.tools.writer import Writer

Schema = Mapping[str, Any]
NOTES = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$schema",
        "$comment",
        "$id",
    }
)
DEFINITIONS = ("$defs", "definitions")
LIST = NOTES | {"type", "properties", "required", "additionalProperties", *DEFINITIONS}
TEXT = NOTES | {"type", "enum", "const", "minLength", "maxLength", "pattern"}
PYTHON_WORDS = {"boolean": '"True" | "False"', "null": '"None"'}
APOSTROPHES = r"/'([^'\\\n]|\\[^xuU0-9\n])*'/"
PLAIN_JSON = {"whitespace_flexible": False, "json_allowed_escapes": ""}


@dataclass(frozen=True)
class Parameter:
    key: str
    schema: Schema
    required: bool


def can_hold(name: str, schema: Schema, frame: Frame) -> bool:
    """Whether a call of this function can follow its schema in this form."""
    form = frame.parameters
    return form is None or (_name_fits(name, frame) and (is_any(schema) or listed(schema, form) is not None))


def _name_fits(name: str, frame: Frame) -> bool:
    return re.fullmatch(frame.names, name) is not None


def is_any(schema: Schema) -> bool:
    """It takes every object."""
    return not schema.keys() - NOTES - {"type"}


def listed(schema: Schema, form: Parameters) -> list[Parameter] | None:
    """None: the form cannot hold the schema."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.keys() - LIST or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    named = all(isinstance(one, str) and one in properties for one in required)
    if schema.get("additionalProperties", False) is not False or not named:
        return None
    definitions = {name: schema[name] for name in DEFINITIONS if name in schema}
    found, repeated = [], 0
    for key, one in properties.items():
        about = {} if one is True else one
        key_fits = re.fullmatch(form.keys, key) and key == key.strip()
        if not isinstance(about, dict) or not key_fits or not _value_fits(about, form):
            return None
        if any(_references(about)):
            about, repeated = about | definitions, repeated + 1
        found.append(Parameter(key, about, key in required))
    if repeated and not _can_repeat(properties, definitions, repeated):
        return None
    return found


def _can_repeat(properties: Schema, definitions: Schema, times: int) -> bool:
    """Whether each property may take a copy of the definitions with it."""
    own = ("#/$defs/", "#/definitions/")
    known = all(one.startswith(own) for part in (properties, definitions) for one in _references(part))
    return known and times * len(json.dumps(definitions)) <= limits.GRAMMAR_BYTES_MAX


def _references(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(reference := one.get("$ref"), str):
                yield reference
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _is_text(schema: Schema, form: Parameters) -> bool:
    """As the readers see it: they take a value's text as it is if the schema's type is this one."""
    return form.quote is not None and schema.get("type") == "string"


def _value_fits(schema: Schema, form: Parameters) -> bool:
    if _is_text(schema, form):
        return _text_fits(schema, form)
    bare = {name: value for name, value in schema.items() if name not in NOTES}
    return form.escapes or "\\" not in json.dumps(bare, ensure_ascii=False)


def _text_fits(schema: Schema, form: Parameters) -> bool:
    if schema.keys() - TEXT:
        return False
    kinds = [name for name in ("enum", "const", "pattern") if name in schema]
    lengths = [schema[name] for name in ("minLength", "maxLength") if name in schema]
    kinds += ["length"] if lengths else []
    if not all(isinstance(one, int) and one >= 0 for one in lengths):
        return False
    if len(kinds) > 1:
        return False
    values = _values(schema)
    if values is not None:
        return bool(values) and all(isinstance(one, str) and _end(form) not in one for one in values)
    return "pattern" not in schema or _inside_pattern(schema["pattern"]) is not None


def _values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _inside_pattern(pattern: Any) -> str | None:
    """What is between `^` and `$`; None: it is no pattern of a whole text."""
    if not isinstance(pattern, str) or not pattern.startswith("^") or not re.search(r"(?<!\\)\$$", pattern):
        return None
    inside = pattern[1:-1]
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", inside, flags=re.S)
    if "\n" in inside or re.search(r"[$^|]", re.sub(r"\([^()]*\)", "", bare)) or "(?" in inside:
        return None
    return inside


def _end(form: Parameters) -> str:
    assert form.quote is not None
    return form.quote[1] + form.after


class ParameterRules:
    """Writes the rules of one function's arguments. `name`: a beginning for the rules' names."""

    def __init__(self, writer: Writer, form: Parameters, name: str) -> None:
        self._writer, self._form, self._name = writer, form, name

    def any(self) -> str:
        """Every list of parameters."""
        writer, form = self._writer, self._form
        value = self._any_value()
        if IS_TEXT in form.before:
            anything = f"{writer.json(f'{self._name}_any_json', {})} {writer.literal(form.after)}"
            ways = [self._any_head("true") + value, self._any_head("false") + anything]
        else:
            ways = [f"{self._any_head('')}({value})"]
        one = writer.rule(f"{self._name}_any", " | ".join(ways))
        joint = f"{writer.literal(form.between)} " if form.between else ""
        return writer.rule(self._name, f"({one} ({joint}{one})*)?")

    def _any_head(self, text: str) -> str:
        before, behind = self._form.before.replace(IS_TEXT, text).split(KEY)
        return f"{self._writer.literal(before)} /{self._form.keys}/ {self._writer.literal(behind)} "

    def _any_value(self) -> str:
        writer, form, name = self._writer, self._form, f"{self._name}_any_value"
        if form.python:
            return f'{APOSTROPHES} | "True" | "False" | "None" | {writer.json(name, {})}'
        if not form.escapes:
            bare = writer.json(
                f"{name}_bare", {"type": ["object", "array", "number", "boolean", "null"]}, options=PLAIN_JSON
            )
            return f"{self._text(name, {})} | {bare}"
        return writer.text_until(name, form.after)

    def of(self, parameters: list[Parameter]) -> str:
        """In their order; those that are not required may be left out."""
        writer, form = self._writer, self._form
        rest_first, rest = '""', '""'
        for at in range(len(parameters) - 1, -1, -1):
            one = self._one(f"{self._name}_{at}", parameters[at])
            joint = f"{writer.literal(form.between)} " if form.between else ""
            first = f"{one} {rest}"
            later = f"{joint}{one}"
            if not parameters[at].required:
                first, later = f"({first} | {rest_first})", f"({later})?"
            rest_first = writer.rule(f"{self._name}_first_{at}", first)
            rest = writer.rule(f"{self._name}_rest_{at}", f"{later} {rest}")
        return writer.rule(self._name, rest_first)

    def _one(self, name: str, parameter: Parameter) -> str:
        writer, form = self._writer, self._form
        text = _is_text(parameter.schema, form)
        before = writer.literal(form.before.replace(KEY, parameter.key).replace(IS_TEXT, json.dumps(text)))
        if text:
            return writer.rule(name, f"{before} {self._text(f'{name}_text', parameter.schema)}")
        return writer.rule(
            name, f"{before} ({self._json(name, parameter.schema)}) {writer.literal(form.after)}"
        )

    def _json(self, name: str, schema: Schema) -> str:
        form = self._form
        kind, constraints = schema.get("type"), schema.keys() - NOTES
        if form.python and constraints == {"type"} and isinstance(kind, str) and kind in PYTHON_WORDS:
            return PYTHON_WORDS[kind]
        json_rule = self._writer.json(f"{name}_value", schema, options=None if form.escapes else PLAIN_JSON)
        if form.python and constraints == {"type"} and kind == "string":
            return f"{APOSTROPHES} | {json_rule}"
        return json_rule

    def _text(self, name: str, schema: Schema) -> str:
        """A string as it is, with the quotes around it and what follows."""
        writer, form = self._writer, self._form
        assert form.quote is not None
        opening = f"{writer.literal(form.quote[0])} " if form.quote[0] else ""
        values = _values(schema)
        if values is not None:
            choice = writer.rule(name, " | ".join(map(json.dumps, values)))
            return f"{opening}{choice} {writer.literal(_end(form))}"
        if "pattern" in schema:
            pattern = _inside_pattern(schema["pattern"])
        else:
            lengths = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
            pattern = f"(.|\\n){{{lengths}}}" if lengths != "0," else None
        if pattern is None:
            return opening + writer.text_until(name, _end(form))
        return opening + writer.pattern_until(name, pattern, _end(form))
