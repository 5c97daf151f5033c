"""What `/v1/responses` of the bundled engine takes."""

from __future__ import annotations

import json

import msgspec

from llmendpoint_server.api.openai_responses.bodies import FORMS, UNSUPPORTED, ResponsesBody
from tests.reference.api import NO_EFFECT, OF_THE_MODEL
from tests.reference.pages import table

MEANINGS: dict[str, tuple[str, str]] = {
    "model": ("required", "Which endpoint is asked."),
    "input": ("required", "The conversation: a text of the user's, or items."),
    "instructions": ("none", "A system message before the input."),
    "stream": ("false", "Send the response as typed server-sent events."),
    "stream_options": ("none", NO_EFFECT),
    "max_output_tokens": ("all that the model's length leaves", "Most tokens of the answer, with its reasoning."),
    "temperature": (f"{OF_THE_MODEL}, else 1", "How random the choice of tokens is."),
    "top_p": (f"{OF_THE_MODEL}, else 1", "Choose among the likeliest tokens that together have this probability."),
    "include": ("none", "With `message.output_text.logprobs` the text has its log probabilities; the others have no effect."),
    "top_logprobs": ("0", "How many of the likeliest tokens to show beside each token."),
    "tools": ("none", "The functions that the answer may call. One with `strict: true` has arguments by its schema."),
    "tool_choice": ("`auto` with tools", "Whether the answer may or must call one, or which one."),
    "parallel_tool_calls": ("true", "The answer may have several calls."),
    "text": ("text", "`format`: what the answer must look like. `verbosity` has no effect."),
    "reasoning": ("the template's", "`effort` is a variable of the chat template. `summary` has no effect: the reasoning itself is shown."),
    "metadata": ("none", "The response repeats it."),
    "store": ("false", "Accepted; the engine stores nothing, and the response says `false`."),
    **dict.fromkeys(
        (
            "max_tool_calls", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
            "prompt_cache_options",
        ),
        ("", NO_EFFECT),
    ),
}  # fmt: skip
"""Default and meaning of every field that is taken."""


def fields() -> str:
    """A row for each field. Raises ValueError where one has no meaning here, or is not there any more."""
    taken = {field.name for field in msgspec.structs.fields(ResponsesBody)} - UNSUPPORTED.keys()
    if differing := taken ^ MEANINGS.keys():
        raise ValueError(f"fields and their meanings differ: {', '.join(sorted(differing))}")
    rows = ((f"`{name}`", FORMS.get(name, "anything"), *MEANINGS[name]) for name in MEANINGS)
    return table(("field", "must be", "default", "meaning"), rows)


def unsupported() -> str:
    rows = (
        (f"`{name}`", " or ".join(f"`{json.dumps(value)}`" for value in (None, *neutral)))
        for name, neutral in UNSUPPORTED.items()
    )
    return table(("field", "accepted only as"), rows)
