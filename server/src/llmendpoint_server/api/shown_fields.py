"""The fields of a body that change what is shown of its answers, and how its prompt becomes tokens. Their names are vLLM's."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from llmendpoint_server import limits

_FLAG = "true or false"

FORMS: dict[str, str] = {
    "return_token_ids": _FLAG,
    "return_tokens_as_token_ids": _FLAG,
    "prompt_logprobs": f"a whole number from 0 to {limits.LOGPROBS_MAX}",
    "include_stop_str_in_output": _FLAG,
    "skip_special_tokens": _FLAG,
    "add_special_tokens": _FLAG,
    "truncate_prompt_tokens": f"a whole number from 1 to {limits.MAX_TOKENS_MAX}, or -1 for the model's length",
    "priority": f"a whole number from {limits.PRIORITY_MIN} to {limits.PRIORITY_MAX}",
}
"""What each field must be."""


class ShownFields(Struct, forbid_unknown_fields=True):
    """None: not given."""

    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=limits.LOGPROBS_MAX)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=limits.MAX_TOKENS_MAX)] | None = None
    # Without effect: callers say how urgent a request is in its headers.
    priority: Annotated[int, Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX)] | None = None
