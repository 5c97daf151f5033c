"""The messages of a chat: what is accepted in them, and what a chat template gets."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from llmendpoint_server import limits
from llmendpoint_server.api.explain import missing, must_be
from llmendpoint_server.api.fields import NOT_GIVEN, is_neutral
from llmendpoint_server.errors import InvalidRequest

TOOL_ROLES = ("tool", "function")
ROLES = ("system", "developer", "user", "assistant")


class Part(Struct):
    """Fields that are not named here have no effect: clients send `cache_control` and their like."""

    type: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]
    text: str | UnsetType = UNSET
    # Declared so that their refusal says what is not supported.
    image_url: Raw = NOT_GIVEN
    input_audio: Raw = NOT_GIVEN
    file: Raw = NOT_GIVEN
    refusal: Raw = NOT_GIVEN


ANSWER_FIELDS = ("refusal", "annotations", "audio", "function_call", "tool_calls")
"""What OpenAI's answers carry beside their text. SDKs send it back, empty, when an answer becomes a chat's next
message."""


class Message(Struct):
    """Fields that are not named here have no effect, as in vLLM: `reasoning_content`, `cache_control`, and what clients keep of an
    answer that becomes a message."""

    role: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]
    content: str | Annotated[list[Part], Meta(max_length=limits.PARTS_MAX)] | UnsetType | None = UNSET
    name: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)] | None = None
    refusal: Raw = NOT_GIVEN
    annotations: Raw = NOT_GIVEN
    audio: Raw = NOT_GIVEN
    function_call: Raw = NOT_GIVEN
    tool_calls: Raw = NOT_GIVEN
    tool_call_id: Raw = NOT_GIVEN

    def for_template(self, place: str) -> dict[str, str]:
        """Plain text under the roles that templates know (`developer` is OpenAI's newer name for `system`).

        `place`: where the message is, for the errors. Raises InvalidRequest.
        """
        self._check(place)
        if isinstance(self.content, str):
            text = self.content
        elif isinstance(self.content, list):
            text = "".join([_text_of(part, f"{place}.content[{at}]") for at, part in enumerate(self.content)])
        elif self.content is UNSET:
            raise missing(f"{place}.content")
        else:
            raise must_be(f"{place}.content")
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})

    def _check(self, place: str) -> None:
        if self.role in TOOL_ROLES:
            raise InvalidRequest(
                f"{place}.role is {self.role!r}, and this server does not support tools: neither tool calls nor their "
                f"results. The roles are {', '.join(ROLES)}.",
                param=f"{place}.role",
            )
        if self.role not in ROLES:
            raise must_be(f"{place}.role")
        for field in ANSWER_FIELDS:
            value = getattr(self, field)
            if value is not NOT_GIVEN and not is_neutral(value, ([], "")):
                what = (
                    "this server does not support tools"
                    if "call" in field
                    else "this server takes text alone"
                )
                raise InvalidRequest(
                    f"{place}.{field} is not supported: {what}. Leave it out.", param=f"{place}.{field}"
                )
        if self.tool_call_id is not NOT_GIVEN:
            raise InvalidRequest(
                f"{place}.tool_call_id is not supported: this server does not support tools. Leave it out.",
                param=f"{place}.tool_call_id",
            )


def _text_of(part: Part, place: str) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"{place}.type is {part.type[:64]!r}, and this server takes text alone: the type must be 'text'.",
            param=f"{place}.type",
        )
    if isinstance(part.text, str):
        return part.text
    raise missing(f"{place}.text")
