"""What the bodies of all routes share."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

NOT_GIVEN = Raw(b"null")
LONGEST_NEUTRAL = 64
"""Bytes. A longer value of a field that is not supported is not neutral; it is refused without being decoded."""


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
