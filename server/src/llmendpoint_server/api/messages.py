"""The messages of a chat: what is accepted in them, and what a chat template gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from llmendpoint_server import limits
from llmendpoint_server.api.explain import missing, must_be
from llmendpoint_server.api.fields import NOT_GIVEN, is_neutral
from llmendpoint_server.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")
Name = Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]


class Part(Struct):
    """Fields that are not named here have no effect: clients send `cache_control` and their like."""

    type: Name
    text: str | UnsetType = UNSET
    # Declared so that their refusal says what is not supported.
    image_url: Raw = NOT_GIVEN
    input_audio: Raw = NOT_GIVEN
    file: Raw = NOT_GIVEN
    refusal: Raw = NOT_GIVEN


class CalledFunction(Struct):
    name: Name
    arguments: str | None = None


class MadeCall(Struct):
    function: CalledFunction
    id: Name | None = None
    type: Name = "function"

    def for_template(self, place: str) -> dict[str, Any]:
        if self.type != "function":
            raise InvalidRequest(
                f"{place}.type is {self.type[:64]!r}; it must be 'function'.", param=f"{place}.type"
            )
        function = {"name": self.function.name, "arguments": self._arguments(place)}
        return {"id": self.id or "", "type": "function", "function": function}

    def _arguments(self, place: str) -> dict[str, Any]:
        """Templates expect an object. A model may have written nothing for a function without parameters."""
        text = self.function.arguments or "{}"
        try:
            value = json.loads(text, strict=False)
            if "\\ud" in text.lower():
                value = _without_lone_surrogates(value)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            field = f"{place}.function.arguments"
            raise InvalidRequest(f"{field} must be a string that holds a JSON object.", param=field)
        return value


def _without_lone_surrogates(value: Any) -> Any:
    """A model may write one, JSON allows it, and no text of a prompt can hold it."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(text)


ANSWER_FIELDS = ("refusal", "annotations", "audio")
"""What OpenAI's answers carry beside their text. SDKs send it back, empty, when an answer becomes a chat's next
message."""


class Message(Struct):
    """Fields that are not named here have no effect, as in vLLM: `cache_control`, and what clients keep of an answer that
    becomes a message. `reasoning_content`, or `reasoning`: of an answer; the template decides whether it is shown."""

    role: Name
    content: str | Annotated[list[Part], Meta(max_length=limits.PARTS_MAX)] | UnsetType | None = UNSET
    name: Name | None = None
    tool_calls: Annotated[list[MadeCall], Meta(max_length=limits.TOOL_CALLS_MAX)] | None = None
    tool_call_id: Name | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Raw = NOT_GIVEN
    annotations: Raw = NOT_GIVEN
    audio: Raw = NOT_GIVEN
    function_call: Raw = NOT_GIVEN

    def for_template(self, place: str) -> dict[str, Any]:
        """A message under the roles that templates know (`developer` is OpenAI's newer name for `system`): its content a
        text, or a list of text parts if it came as one; the arguments of its calls are objects.

        `place`: where the message is, for the errors. Raises InvalidRequest.
        """
        self._check(place)
        message: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role}
        if isinstance(self.content, list):
            message["content"] = [
                {"type": "text", "text": _text_of(part, f"{place}.content[{at}]")}
                for at, part in enumerate(self.content)
            ]
        elif isinstance(self.content, str):
            message["content"] = self.content
        elif self.tool_calls or self.reasoning_content or self.reasoning:
            message["content"] = ""
        elif self.content is UNSET:
            raise missing(f"{place}.content")
        else:
            raise must_be(f"{place}.content")
        if self.name:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if said := self.reasoning_content or self.reasoning:
            message["reasoning_content"] = said
        if self.tool_calls:
            message["tool_calls"] = [
                call.for_template(f"{place}.tool_calls[{at}]") for at, call in enumerate(self.tool_calls)
            ]
        return message

    def _check(self, place: str) -> None:
        if self.role == "function":
            raise InvalidRequest(
                f"{place}.role is 'function', which OpenAI has replaced: send a message with role 'tool' and tool_call_id.",
                param=f"{place}.role",
            )
        if self.role not in ROLES:
            raise must_be(f"{place}.role")
        if not _is_empty(self.function_call):
            raise InvalidRequest(
                f"{place}.function_call is not supported, OpenAI has replaced it: send tool_calls.",
                param=f"{place}.function_call",
            )
        for field in ANSWER_FIELDS:
            if not _is_empty(getattr(self, field)):
                raise InvalidRequest(
                    f"{place}.{field} is not supported: this server takes text alone. Leave it out.",
                    param=f"{place}.{field}",
                )
        if self.tool_calls and self.role != "assistant":
            raise InvalidRequest(
                f"{place}.tool_calls is only for messages with role 'assistant'.", param=f"{place}.tool_calls"
            )
        if self.role == "tool" and self.tool_call_id is None:
            raise missing(f"{place}.tool_call_id")


def for_template(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """All messages of a chat. Raises InvalidRequest."""
    told = [message.for_template(f"messages[{at}]") for at, message in enumerate(messages)]
    names = {call["id"]: call["function"]["name"] for one in told for call in one.get("tool_calls", ())}
    for one in told:
        # Some templates name the function of a result, and OpenAI's messages have only the call's id.
        if one["role"] == "tool" and "name" not in one and one["tool_call_id"] in names:
            one["name"] = names[one["tool_call_id"]]
    return told


def _is_empty(value: Raw) -> bool:
    return value is NOT_GIVEN or is_neutral(value, ([], ""))


def _text_of(part: Part, place: str) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"{place}.type is {part.type[:64]!r}, and this server takes text alone: the type must be 'text'.",
            param=f"{place}.type",
        )
    if isinstance(part.text, str):
        return part.text
    raise missing(f"{place}.text")
