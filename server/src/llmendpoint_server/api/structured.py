"""The fields that ask for structured output, in OpenAI's and vLLM's names, and the one grammar that they mean."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from llmendpoint_server import limits
from llmendpoint_server.api import structural_tags
from llmendpoint_server.api.fields import NOT_GIVEN
from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.sampling_fields import SamplingFields
from llmendpoint_server.core.grammar import Grammar, Kind
from llmendpoint_server.errors import InvalidRequest

ANY_OBJECT = '{"type": "object"}'

Text = Annotated[str, Meta(min_length=1)] | None


class JsonSchemaFormat(msgspec.Struct):
    """`strict` has no effect: the answer always follows the schema."""

    name: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)] = ""
    schema: Raw = NOT_GIVEN
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's. `disable_any_whitespace`: JSON without whitespace."""

    json: Raw = NOT_GIVEN
    regex: Text = None
    choice: Annotated[list[str], Meta(min_length=1, max_length=limits.CHOICES_MAX)] | None = None
    grammar: Text = None
    json_object: bool | None = None
    structural_tag: Raw = NOT_GIVEN
    whitespace_pattern: Text = None
    disable_any_whitespace: bool | None = None


FORMS = {
    "response_format": "an object with type: 'text', 'json_object', 'json_schema' (then also json_schema, an object with name and "
    "schema) or 'structural_tag' (then also format, or structures and triggers)",
    "structured_outputs": "an object with one of json, regex, choice (a list of 1 to "
    f"{limits.CHOICES_MAX} strings), grammar, json_object (true) and structural_tag, and perhaps whitespace_pattern",
    "guided_choice": f"a list of 1 to {limits.CHOICES_MAX} strings",
    "guided_regex": "a regular expression, a string",
    "guided_grammar": "a grammar in Lark's or llama.cpp's form, a string",
    "guided_json": "a JSON schema",
}


def _of_response_format(name: str, value: Raw) -> Asked | None:
    form = _decoded(name, value, ResponseFormat)
    match form.type:
        case "text":
            return None
        case "json_object":
            return Asked(Grammar("json_schema", ANY_OBJECT), name)
        case "json_schema":
            field = f"{name}.json_schema"
            if form.json_schema is None:
                raise InvalidRequest(f"Missing parameter: {field}.", param=field)
            if bytes(form.json_schema.schema) == b"null":
                raise InvalidRequest(f"Missing parameter: {field}.schema.", param=f"{field}.schema")
            return _schema(f"{field}.schema", form.json_schema.schema)
        case structural_tags.KIND:
            return structural_tags.read(name, bytes(value))
    raise InvalidRequest(
        f"{name}.type is {form.type[:64]!r}; it must be 'text', 'json_object', 'json_schema' or 'structural_tag'.",
        param=f"{name}.type",
    )


def _of_structured_outputs(name: str, value: Raw) -> Asked | None:
    form = _decoded(name, value, StructuredOutputs)
    whitespace = "" if form.disable_any_whitespace else form.whitespace_pattern
    found: list[Asked] = []
    if bytes(form.json) != b"null":
        found.append(_schema(f"{name}.json", form.json, whitespace))
    if form.regex is not None:
        found.append(_grammar("regex", form.regex, f"{name}.regex"))
    if form.choice is not None:
        found.append(_grammar("choice", json.dumps(form.choice), f"{name}.choice"))
    if form.grammar is not None:
        found.append(_grammar("lark", form.grammar, f"{name}.grammar"))
    if form.json_object:
        found.append(_grammar("json_schema", ANY_OBJECT, f"{name}.json_object", whitespace))
    if bytes(form.structural_tag) != b"null":
        found.append(structural_tags.read(f"{name}.structural_tag", _object_text(form.structural_tag)))
    if len(found) != 1:
        given = ", ".join(one.field for one in found) or "none"
        raise InvalidRequest(
            f"{name} must have exactly one of json, regex, choice, grammar, json_object and structural_tag; it has {given}.",
            param=name,
        )
    return found[0]


def _of_guided_text(name: str, value: Raw) -> Asked:
    text = _decoded(name, value, str)
    return _grammar("regex" if name == "guided_regex" else "lark", text, name)


def _of_guided_choice(name: str, value: Raw) -> Asked:
    choices = _decoded(name, value, Annotated[list[str], Meta(min_length=1, max_length=limits.CHOICES_MAX)])
    return _grammar("choice", json.dumps(choices), name)


def _object_text(value: Raw) -> str:
    """A JSON object, or, as vLLM takes it too, a string that holds one."""
    text = bytes(value).decode()
    return msgspec.json.decode(bytes(value), type=str).strip() if text.startswith('"') else text


def _schema(field: str, value: Raw, whitespace: str | None = None) -> Asked:
    text = _object_text(value)
    if not text.startswith("{"):
        raise InvalidRequest(f"{field} must be a JSON schema, an object.", param=field)
    return _grammar("json_schema", text, field, whitespace)


def _grammar(kind: Kind, text: str, field: str, whitespace: str | None = None) -> Asked:
    try:
        return Asked(Grammar(kind, text, whitespace), field)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=field) from None


def _decoded(name: str, value: Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(bytes(value), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = str(error)[:100] if isinstance(error, msgspec.ValidationError) else "not valid JSON"
        raise InvalidRequest(f"{name} must be {FORMS[name]} ({detail}).", param=name) from None


_READERS = {
    "response_format": _of_response_format,
    "structured_outputs": _of_structured_outputs,
    "guided_json": lambda name, value: _schema(name, value),
    "guided_regex": _of_guided_text,
    "guided_grammar": _of_guided_text,
    "guided_choice": _of_guided_choice,
}


class StructuredFields(SamplingFields, forbid_unknown_fields=True):
    """Null: not given. Raw: most requests have none of them."""

    response_format: Raw = NOT_GIVEN
    structured_outputs: Raw = NOT_GIVEN
    guided_json: Raw = NOT_GIVEN
    guided_regex: Raw = NOT_GIVEN
    guided_choice: Raw = NOT_GIVEN
    guided_grammar: Raw = NOT_GIVEN

    def grammar(self) -> Asked | None:
        """The one grammar that they mean; None: free text. Raises InvalidRequest, also for more than one."""
        found: list[Asked] = []
        for name, read in _READERS.items():
            value: Raw = getattr(self, name)
            if bytes(value) != b"null":
                one = read(name, value)
                found += [one] if one is not None else []
        if len(found) > 1:
            names = ", ".join(one.field for one in found)
            raise InvalidRequest(f"{names} exclude each other: send one of them.", param=found[1].field)
        return found[0] if found else None
