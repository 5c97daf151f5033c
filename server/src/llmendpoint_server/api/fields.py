"""What the bodies of all routes share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from llmendpoint_server import limits

NOT_GIVEN = Raw(b"null")
LONGEST_NEUTRAL = 64
"""Bytes. A longer value of a field that is not supported is not neutral; it is refused without being decoded."""

CallerText = Annotated[str, Meta(max_length=limits.CALLER_CHARACTERS_MAX)] | None
Count = Annotated[int, Meta(ge=limits.MAX_TOKENS_MIN, le=limits.MAX_TOKENS_MAX)] | None
Metadata = Annotated[
    dict[
        Annotated[str, Meta(max_length=limits.METADATA_KEY_MAX)],
        Annotated[str, Meta(max_length=limits.METADATA_VALUE_MAX)],
    ],
    Meta(max_length=limits.METADATA_PAIRS_MAX),
] | None  # fmt: skip


class Body(msgspec.Struct, forbid_unknown_fields=True):
    pass


def is_neutral(value: Raw, neutrals: tuple[Any, ...]) -> bool:
    """Whether an unsupported field's value is neutral. 0 and false differ."""
    data = bytes(value)
    if len(data) > LONGEST_NEUTRAL:
        return False
    given = msgspec.json.decode(data)
    return given is None or any(
        given == neutral and isinstance(given, bool) == isinstance(neutral, bool) for neutral in neutrals
    )


def function_of_chat(
    name: str, parameters: Any, strict: bool | None, description: str | None
) -> dict[str, Any]:
    """A function as `tools` of a chat has it; the bodies of other APIs say the same in their own shapes."""
    function = {"name": name, "parameters": parameters, "strict": bool(strict)}
    return function if description is None else {**function, "description": description}
