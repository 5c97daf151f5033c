"""What a request says of tools: the functions, and which of them the answer may or must call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from llmendpoint_server import limits
from llmendpoint_server.api.chat_fields import FORMS
from llmendpoint_server.api.fields import NOT_GIVEN
from llmendpoint_server.errors import InvalidRequest

NAME = re.compile(rf"[a-zA-Z0-9_.\-]{{1,{limits.TOOL_NAME_MAX}}}")
ANY_ARGUMENTS = '{"type": "object"}'
CHOICES = FORMS["tool_choice"]

Must = Literal["auto", "required"]


class _Function(Struct):
    name: str
    description: str | None = None
    parameters: Raw = NOT_GIVEN
    strict: bool | None = None


class _Tool(Struct):
    type: str
    function: _Function | None = None


class _Name(Struct):
    name: str


class _Named(Struct):
    type: str
    function: _Name | None = None


class _Allowed(Struct):
    """Those of the request's functions that the answer may call. `mode`: "auto" or "required"."""

    mode: str
    tools: list[_Named]


class _Choice(_Named):
    allowed_tools: _Allowed | None = None


@dataclass(frozen=True)
class Function:
    """`parameters`: the JSON schema's text. `field`: where it is in the body."""

    name: str
    parameters: str
    strict: bool
    field: str

    def schema(self) -> Mapping[str, Any]:
        value = json.loads(self.parameters)
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Tools:
    """`functions`: those that the answer may call. `shown`: all of the request, as the chat template gets them.
    `must`: the answer has to call one. `parallel`: it may call several. `chosen`: the request has more functions, which the model
    sees and must not call."""

    functions: tuple[Function, ...]
    shown: Sequence[Mapping[str, Any]]
    must: bool
    parallel: bool
    chosen: bool = False

    @property
    def free(self) -> bool:
        """No grammar is needed: any call in an answer is right, and so is none."""
        return not (self.must or self.chosen or any(one.strict for one in self.functions))

    def schemas(self) -> dict[str, Mapping[str, Any]]:
        return {function.name: function.schema() for function in self.functions}


def read_tools(tools: Raw, choice: Raw, parallel: bool | None) -> Tools | None:
    """None: the answer calls nothing, and the model is told of no functions. Raises InvalidRequest."""
    given = _decode("tools", tools, list[_Tool] | None, FORMS["tools"])
    wanted = _read_choice(choice)
    if not given:
        if wanted not in (None, "none"):
            raise InvalidRequest(
                "tool_choice is only for requests with tools: add the functions, or leave it out.",
                param="tool_choice",
            )
        return None
    functions = _read_functions(given)
    if wanted == "none":
        return None
    if isinstance(wanted, _Name):
        name = wanted.name
        named = tuple(function for function in functions if function.name == name)
        if not named:
            raise InvalidRequest(
                f"tool_choice names {name[: limits.TOOL_NAME_MAX]!r}, which is not in tools.",
                param="tool_choice",
            )
        return Tools(named, _shown(tools), must=True, parallel=False)
    if isinstance(wanted, _Allowed):
        allowed = _allowed(wanted, functions)
        return Tools(
            allowed, _shown(tools), wanted.mode == "required", parallel is not False, len(allowed) < len(functions)
        )  # fmt: skip
    return Tools(functions, _shown(tools), must=wanted == "required", parallel=parallel is not False)


def _read_choice(choice: Raw) -> str | _Name | _Allowed | None:
    given: str | _Choice | None = _decode("tool_choice", choice, str | _Choice | None, CHOICES)
    if given is None or (isinstance(given, str) and given in ("none", "auto", "required")):
        return given
    if isinstance(given, _Choice) and given.type == "function" and given.function is not None:
        return given.function
    if isinstance(given, _Choice) and given.type == "allowed_tools" and given.allowed_tools is not None:
        return given.allowed_tools
    raise InvalidRequest(f"tool_choice must be {CHOICES}.", param="tool_choice")


def _allowed(given: _Allowed, functions: tuple[Function, ...]) -> tuple[Function, ...]:
    """In the order of `tools`."""
    field = "tool_choice.allowed_tools"
    if given.mode not in ("auto", "required"):
        raise InvalidRequest(f"{field}.mode must be 'auto' or 'required'.", param=f"{field}.mode")
    if not 1 <= len(given.tools) <= limits.TOOLS_MAX:
        raise InvalidRequest(
            f"{field}.tools holds {len(given.tools)} functions; it takes 1 to {limits.TOOLS_MAX}. To allow none, send "
            "tool_choice 'none'.",
            param=f"{field}.tools",
        )
    known = {function.name for function in functions}
    names = set()
    for at, tool in enumerate(given.tools):
        place = f"{field}.tools[{at}]"
        if tool.type != "function" or tool.function is None:
            raise InvalidRequest(f"{place} must have type 'function' and function with a name.", param=place)
        if (name := tool.function.name) not in known:
            raise InvalidRequest(
                f"{place} names {name[: limits.TOOL_NAME_MAX]!r}, which is not in tools.", param=place
            )
        names.add(name)
    return tuple(function for function in functions if function.name in names)


def _read_functions(given: list[_Tool]) -> tuple[Function, ...]:
    if len(given) > limits.TOOLS_MAX:
        raise InvalidRequest(
            f"tools holds {len(given)} functions; it takes at most {limits.TOOLS_MAX}.", param="tools"
        )
    functions: dict[str, Function] = {}
    for at, tool in enumerate(given):
        function = _read_function(tool, f"tools[{at}]")
        if function.name in functions:
            raise InvalidRequest(
                f"{function.field}.name is {function.name!r} a second time; each function needs its own name.",
                param=f"{function.field}.name",
            )
        functions[function.name] = function
    return tuple(functions.values())


def _read_function(tool: _Tool, place: str) -> Function:
    if tool.type != "function":
        raise InvalidRequest(
            f"{place}.type is {tool.type[:64]!r}, and this server has no tools of its own: it must be 'function'.",
            param=f"{place}.type",
        )
    field = f"{place}.function"
    if tool.function is None:
        raise InvalidRequest(f"Missing parameter: {field}.", param=field)
    if not NAME.fullmatch(tool.function.name):
        raise InvalidRequest(
            f"{field}.name must be 1 to {limits.TOOL_NAME_MAX} letters, digits, '_', '-' or '.'.",
            param=f"{field}.name",
        )
    return Function(tool.function.name, _parameters(tool.function, field), bool(tool.function.strict), field)


def _parameters(function: _Function, field: str) -> str:
    text = bytes(function.parameters)
    place = f"{field}.parameters"
    if text == b"null":
        return ANY_ARGUMENTS
    if len(text) > limits.TOOL_PARAMETERS_BYTES_MAX:
        raise InvalidRequest(
            f"{place} has {len(text)} bytes; it may have at most {limits.TOOL_PARAMETERS_BYTES_MAX}.",
            param=place,
        )
    schema = _decode(place, function.parameters, dict[str, Any], "a JSON schema, an object")
    kind = schema.setdefault("type", "object")
    if kind != "object":
        raise InvalidRequest(f"{place}.type must be 'object': arguments have names.", param=f"{place}.type")
    return json.dumps(schema, ensure_ascii=False)


def _shown(tools: Raw) -> list[dict[str, Any]]:
    """As the caller wrote them, without what no model was trained with, and with the parameters that templates expect."""
    shown = msgspec.json.decode(bytes(tools))
    for tool in shown:
        function = tool["function"]
        function.pop("strict", None)
        if function.get("parameters") is None:
            function["parameters"] = {"type": "object", "properties": {}}
    return shown  # type: ignore[no-any-return]


def _decode(field: str, value: Raw, kind: Any, form: str) -> Any:
    try:
        return msgspec.json.decode(bytes(value), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = str(error)[:100] if isinstance(error, msgspec.ValidationError) else "not valid JSON"
        raise InvalidRequest(f"{field} must be {form} ({detail}).", param=field) from None
