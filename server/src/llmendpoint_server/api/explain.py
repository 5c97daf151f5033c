"""Says what was wrong with a body: the field, its bounds, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from llmendpoint_server import limits
from llmendpoint_server.api import sampling_fields, shown_fields, structured
from llmendpoint_server.errors import InvalidRequest

SHOWN_CHARACTERS = 64
"""Characters to show of a name that the caller made up."""

_TOKENS = f"a whole number from {limits.MAX_TOKENS_MIN} to {limits.MAX_TOKENS_MAX}"
_CALLER = f"a string of at most {limits.CALLER_CHARACTERS_MAX} characters"
_FLAG = "true or false"

FORMS: dict[str, str] = {
    "model": f"a model's name, a string of 1 to {limits.MODEL_CHARACTERS_MAX} characters",
    "messages": f"a list of at least 1 and at most {limits.MESSAGES_MAX} messages",
    "messages[]": "an object with role and content",
    "messages[].role": "'system', 'developer', 'user' or 'assistant'",
    "messages[].content": f"a string or a list of at most {limits.PARTS_MAX} text parts",
    "messages[].content[]": "an object with type 'text' and text",
    "messages[].content[].type": "'text'",
    "messages[].content[].text": "a string",
    "messages[].name": f"a string of at most {limits.NAME_CHARACTERS_MAX} characters",
    "prompt": "a string, a list of token ids (whole numbers), or a list of strings or of lists of token ids, which are several prompts",
    "n": f"a whole number from {limits.N_MIN} to {limits.N_MAX}",
    "best_of": "equal to n",
    "stream": _FLAG,
    "stream_options": "an object with include_usage",
    "stream_options.include_usage": _FLAG,
    "stream_options.include_obfuscation": _FLAG,
    "stream_options.continuous_usage_stats": _FLAG,
    "max_tokens": _TOKENS,
    "max_completion_tokens": _TOKENS,
    "temperature": f"a number from {limits.TEMPERATURE_MIN:g} to {limits.TEMPERATURE_MAX:g}",
    "top_p": f"a number greater than {limits.TOP_P_MIN:g} and at most {limits.TOP_P_MAX:g}",
    "top_k": f"a whole number from 1 to {limits.TOP_K_MAX}, or {' or '.join(map(str, limits.TOP_K_OFF))} for no limit",
    "seed": f"a whole number from {limits.SEED_MIN} to {limits.SEED_MAX}",
    "stop": f"a string, or a list of at most {limits.STOP_STRINGS_MAX} strings, of 1 to "
    f"{limits.STOP_STRING_CHARACTERS_MAX} characters each",
    "stop_token_ids": f"a list of at most {limits.STOP_TOKEN_IDS_MAX} token ids (whole numbers)",
    "ignore_eos": _FLAG,
    "cache_salt": f"a string of at most {limits.CACHE_SALT_CHARACTERS_MAX} characters",
    "metadata": f"an object of at most {limits.METADATA_PAIRS_MAX} pairs: keys of at most {limits.METADATA_KEY_MAX} and "
    f"strings of at most {limits.METADATA_VALUE_MAX} characters",
    "store": _FLAG,
    "parallel_tool_calls": _FLAG,
    "logprobs": f"true or false for chat/completions, a whole number from 0 to {limits.LOGPROBS_MAX} for completions",
    "top_logprobs": f"a whole number from 0 to {limits.LOGPROBS_MAX}",
    "echo": _FLAG,
    "add_generation_prompt": _FLAG,
    **shown_fields.FORMS,
    **sampling_fields.FORMS,
    **structured.FORMS,
} | dict.fromkeys(
    (
        "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
        "verbosity",
    ),
    _CALLER,
)  # fmt: skip
"""What each field must be. `[]` stands for any position in a list."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?([^`]*)`)?", re.S)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?([^`]*)`)?")
_PLACE = re.compile(r".* - at (?:`key` in )?`\$\.?([^`]*)`", re.S)


def must_be(place: str, forms: Mapping[str, str] = FORMS) -> InvalidRequest:
    """The error for the field at `place`, such as `messages[3].role`. An item without a form of its own is its list's
    fault."""
    while place and (form := forms.get(re.sub(r"\[\d+\]", "[]", place))) is None:
        place = place[: max(place.rfind("["), place.rfind("."), 0)]
    if not place:
        return InvalidRequest("The request's body must be a JSON object.")
    return InvalidRequest(f"{place} must be {form}.", param=place)


def missing(place: str) -> InvalidRequest:
    return InvalidRequest(f"Missing parameter: {place}.", param=place)


def explain(error: Exception, forms: Mapping[str, str] = FORMS) -> InvalidRequest:
    """The 400 for an error from msgspec. `forms`: what the fields of this kind of body must be."""
    if isinstance(error, RecursionError):
        return InvalidRequest("The request's body is JSON that is nested too deeply.")
    if not isinstance(error, msgspec.ValidationError):
        return InvalidRequest(f"The request's body is not valid JSON: {_what(error)}.")
    text = str(error)
    if found := _UNKNOWN.fullmatch(text):
        place = _join(found[2], _shown(found[1]))
        return InvalidRequest(f"Unknown parameter: {place}. Leave it out.", param=place)
    if found := _MISSING.fullmatch(text):
        return missing(_join(found[2], found[1]))
    found = _PLACE.fullmatch(text)
    return must_be(found[1] if found else "", forms)


def _what(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):  # its message holds the whole body
        return "a string in it is not UTF-8"
    return str(error).removeprefix("JSON is malformed: ")


def _join(place: str | None, name: str) -> str:
    return f"{place}.{name}" if place else name


def _shown(name: str) -> str:
    return name if len(name) <= SHOWN_CHARACTERS else name[:SHOWN_CHARACTERS] + "…"
