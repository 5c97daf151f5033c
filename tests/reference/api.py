"""What callers of the HTTP API may send: the fields and bounds of the bundled engine, and the bounds of the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from llmendpoint_gateway.core.envoy import bounds
from llmendpoint_gateway.core.request.body import MOST_MODEL_BYTES
from llmendpoint_gateway.core.request.paths import API_PATHS, MOST_PATH
from llmendpoint_server import limits
from llmendpoint_server.api.body import LARGE_AT_ONCE, LARGE_BYTES, PLACE_WAIT_S
from llmendpoint_server.api.engine_stream import UNREAD_TOKENS_MAX
from llmendpoint_server.api.explain import FORMS
from llmendpoint_server.api.off_loop import WAITING_MAX
from llmendpoint_server.api.schemas import (
    DEFAULT_COMPLETION_TOKENS,
    UNSUPPORTED,
    ChatBody,
    CompletionBody,
    GenerationBody,
    StreamOptions,
)
from tests.reference.pages import table

NO_EFFECT = "Accepted, without effect."
OF_THE_MODEL = "the model's `generation_config.json`"
MEANINGS: dict[str, tuple[str, str]] = {
    "model": ("required", "Which endpoint is asked: `namespace/name`, or one of its served names."),
    "messages": ("required", "`chat/completions` only: the conversation."),
    "prompt": ("required", "`completions` only: the text to continue, or several texts."),
    "n": ("1", "How many answers to make to each prompt."),
    "best_of": ("`n`", "Accepted if it is equal to `n`: every answer that is made is returned."),
    "stream": ("false", "Send the answer token by token, as server-sent events."),
    "stream_options.include_usage": ("false", "With `stream`: one more chunk at the end, with the token counts."),
    "stream_options.include_obfuscation": ("", NO_EFFECT),
    "stream_options.continuous_usage_stats": ("false", "With `include_usage`: the token counts so far in every chunk."),
    "max_tokens": (
        f"chat: all that the model's length leaves; completions: {DEFAULT_COMPLETION_TOKENS}",
        "Most tokens of the answer. A higher value than the model's length leaves is lowered to that.",
    ),
    "max_completion_tokens": ("", "`chat/completions` only: takes precedence over `max_tokens`."),
    "temperature": (f"{OF_THE_MODEL}, else 1", "How random the choice of tokens is. 0 always takes the likeliest."),
    "top_p": (f"{OF_THE_MODEL}, else 1", "Choose among the likeliest tokens that together have this probability."),
    "top_k": (f"{OF_THE_MODEL}, else no limit", "Choose among this many of the likeliest tokens."),
    "min_p": (
        f"{OF_THE_MODEL}, else 0",
        "Choose among the tokens that have at least this share of the likeliest one's probability.",
    ),
    "frequency_penalty": ("0", "Lowers a token's logit by this much each time that the answer has it."),
    "presence_penalty": ("0", "Lowers a token's logit by this much if the answer has it."),
    "repetition_penalty": (
        f"{OF_THE_MODEL}, else 1",
        "Divides the logit of a token that prompt or answer has, if it is positive; otherwise multiplies it.",
    ),
    "logit_bias": ("none", "Added to the logits of these tokens."),
    "min_tokens": ("0", "No end token and none of `stop_token_ids` comes before so many tokens."),
    "seed": ("random", "Where the random choice starts."),
    "stop": ("none", "The answer ends before the first of these texts."),
    "stop_token_ids": ("none", "The answer ends before the first of these tokens."),
    "ignore_eos": ("false", "Go on after the model's own end token."),
    "response_format": ("text", "What the answer must look like: see [structured output](../concepts/structured-output.md)."),
    "structured_outputs": ("none", "The same, as vLLM asks for it. Only one of these fields may be set."),
    "guided_json": ("none", "vLLM's older name for `structured_outputs.json`."),
    "guided_regex": ("none", "vLLM's older name for `structured_outputs.regex`."),
    "guided_choice": ("none", "vLLM's older name for `structured_outputs.choice`."),
    "guided_grammar": ("none", "vLLM's older name for `structured_outputs.grammar`."),
    "tools": ("none", "`chat/completions` only: the functions that the answer may call: see [tools](../concepts/tools.md)."),
    "tool_choice": ("`auto` with tools", "`chat/completions` only: whether the answer may or must call one, or which one."),
    "parallel_tool_calls": ("true", "`chat/completions` with `tools`: the answer may have several calls."),
    "reasoning_effort": (
        "the template's",
        "`chat/completions` only: a variable of the chat template. `none` also sets `enable_thinking` to false.",
    ),
    "include_reasoning": ("true", "`chat/completions` only: show `reasoning_content`."),
    "chat_template_kwargs": ("none", "`chat/completions` only: variables of the chat template."),
    "documents": ("none", "`chat/completions` only: for chat templates that know them."),
    "continue_final_message": ("false", "`chat/completions` only: the answer goes on from the text of the last message."),
    "logprobs": (
        "none",
        "`chat/completions`: show the log probability of each token. `completions`: how many of the likeliest tokens to show beside it.",
    ),
    "top_logprobs": ("0", "`chat/completions` with `logprobs`: how many of the likeliest tokens to show beside each token."),
    "prompt_logprobs": ("none", "The log probabilities of the prompt's tokens, with so many alternatives. Not with `stream`."),
    "echo": ("false", "`completions` only: each answer begins with its prompt. `max_tokens` may then be 0."),
    "return_token_ids": ("false", "Show the token ids of prompt and answers."),
    "return_tokens_as_token_ids": ("false", "Log probabilities name tokens as `token_id:5`, which is unique."),
    "include_stop_str_in_output": ("false", "What ended the answer is part of its text."),
    "skip_special_tokens": ("true", "Leave the model's special tokens out of the text."),
    "add_generation_prompt": ("true", "`chat/completions` only: the prompt ends where the assistant's answer begins."),
    "add_special_tokens": ("chat: false; completions: true", "Begin the prompt as the model's tokenizer begins a text."),
    "truncate_prompt_tokens": ("none", "Keep only so many of the prompt's last tokens."),
    "cache_salt": ("none", "The prefix cache is shared only with requests that have the same salt."),
    **dict.fromkeys(
        (
            "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
            "prompt_cache_retention", "verbosity", "priority",
        ),
        ("", NO_EFFECT),
    ),
}  # fmt: skip
"""Default and meaning of every field that the engine takes."""


def fields() -> str:
    """A row for each field. Raises ValueError where one has no meaning here, or is not there any more."""
    taken = list(taken_fields())
    if differing := set(taken) ^ MEANINGS.keys():
        raise ValueError(f"fields and their meanings differ: {', '.join(sorted(differing))}")
    rows = ((f"`{name}`", FORMS[name], *MEANINGS[name]) for name in MEANINGS)
    return table(("field", "must be", "default", "meaning"), rows)


def taken_fields() -> Iterator[str]:
    """By both kinds of completion, but for those that are taken only with a value that asks for nothing."""
    own = [f.name for kind in (ChatBody, CompletionBody) for f in msgspec.structs.fields(kind)]
    for name in dict.fromkeys((*own, *(f.name for f in msgspec.structs.fields(GenerationBody)))):
        if name == "stream_options":
            yield from (f"{name}.{f.name}" for f in msgspec.structs.fields(StreamOptions))
        elif name in FORMS:
            yield name


def unsupported() -> str:
    rows = (
        (f"`{name}`", " or ".join(f"`{json.dumps(value)}`" for value in (None, *neutral)))
        for name, neutral in UNSUPPORTED.items()
        if name not in FORMS
    )
    return table(("field", "accepted only as"), rows)


def paths() -> str:
    return "\n".join(f"- `POST {path}`" for path in sorted(API_PATHS))


def engine_bounds() -> str:
    rows = (
        ("body", f"{_mib(limits.BODY_BYTES_FLOOR)}, or {limits.BODY_BYTES_PER_TOKEN} bytes for each token of the model's "
         f"length if that is more; never more than {_mib(limits.BODY_BYTES_MAX)}", "413 `body_too_large`"),
        ("body with a character outside the Basic Multilingual Plane, such as an emoji",
         f"{limits.WIDE_CHARACTERS_FLOOR:,} characters, and {limits.WIDE_CHARACTERS_PER_TOKEN} more for each token of the "
         "model's length", "413 `body_too_large`"),
        ("fields and list items of a body", f"{limits.BODY_VALUES_MAX:,}; for `/v1/completions` one more for each token of "
         "the model's length", "400"),
        (f"bodies over {_mib(LARGE_BYTES)} at one time", f"{LARGE_AT_ONCE}; one more waits up to {PLACE_WAIT_S:g} s",
         "503 `unavailable`"),
        ("prompts that wait to be tokenized", f"{WAITING_MAX}", "429 `queue_full`"),
        ("request line and headers", f"{limits.HEADER_BYTES_MAX >> 10} KiB", "431"),
        ("arrival of the headers", f"{limits.HEADER_SECONDS_MAX:g} s", "408"),
        ("arrival of the body", f"{limits.BODY_SECONDS_MAX:g} s; {limits.LARGE_BODY_SECONDS_MAX:g} s for the part above "
         f"{_mib(LARGE_BYTES)}", "408 `body_timeout`"),
        ("messages of a chat", f"{limits.MESSAGES_MAX:,}, each with at most {limits.PARTS_MAX:,} text parts", "400"),
        ("tokens of an answer that its caller has left unread", f"{UNREAD_TOKENS_MAX:,}", "the stream ends with an error"),
    )  # fmt: skip
    return table(("what", "limit", "above it"), rows)


def gateway_bounds() -> str:
    rows = (
        ("body", _mib(bounds.MAX_BODY_BYTES), "413 `body_too_large`"),
        ("arrival of the whole request", f"{bounds.REQUEST_TIMEOUT[:-1]} s; its headers {bounds.HEADERS_TIMEOUT[:-1]} s",
         "408 `request_timeout`"),
        ("arrival of a request to `/v1/files`, `/v1/uploads` or `/v1/batches`", f"{bounds.UPLOAD_TIMEOUT[:-1]} s; {bounds.UPLOAD_IDLE_TIMEOUT[:-1]} s "
         "without a byte", "408 `request_timeout`"),
        ("headers", f"{bounds.MAX_HEADERS_KB} KiB, and {bounds.MAX_HEADERS} of them", "431 `headers_too_large`"),
        ("path with its query", f"{MOST_PATH:,} characters", "414 `uri_too_long`"),
        ("JSON text of `model`", f"{MOST_MODEL_BYTES} bytes", "400 `invalid_request`"),
        ("requests at one time on one HTTP/2 connection", f"{bounds.MAX_STREAMS}", "they wait for the connection"),
        ("silence of a stream", f"{bounds.STREAM_IDLE_TIMEOUT[:-1]} s", "the connection is closed"),
        ("silence of a WebSocket", f"{bounds.SOCKET_IDLE_TIMEOUT[:-1]} s", "the connection is closed"),
        ("time without reading an answer that is there", f"{bounds.READER_TIMEOUT} s", "the connection is closed"),
        ("connection without a request", f"{bounds.IDLE_TIMEOUT[:-1]} s, less when few are left", "it is closed"),
    )  # fmt: skip
    return table(("what", "limit", "above it"), rows)


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
