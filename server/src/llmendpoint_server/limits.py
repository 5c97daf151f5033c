"""The bounds of a request's fields. The API answers a value outside of them with a 400 that names the field, and the
engine checks again. Pure: `core/`, `api/` and the engine import it. These numbers are written nowhere else.

Ranges are OpenAI's if OpenAI has the field.
"""

from __future__ import annotations

TEMPERATURE_MIN, TEMPERATURE_MAX = 0.0, 2.0
"""Both included; 0 is greedy."""
TOP_P_MIN, TOP_P_MAX = 0.0, 1.0
"""Greater than the first, at most the second."""
TOP_K_OFF = (-1, 0)
"""In a body both mean: no limit. Inside the server it is 0."""
TOP_K_MAX = 2**31 - 1
"""Larger than any vocabulary. A value above the model's vocabulary has no effect."""
SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
"""Both included: an int64."""
MAX_TOKENS_MIN, MAX_TOKENS_MAX = 1, 2**31 - 1
"""Both included; the model's length is the real bound."""
STOP_STRINGS_MAX = 16
STOP_STRING_CHARACTERS_MAX = 256
"""For one stop string, which has at least one character."""
STOP_TOKEN_IDS_MAX = 128
N_MIN, N_MAX = 1, 128
"""Answers to one prompt. Both included."""
ANSWERS_MAX = 256
"""Prompts of one body times `n`."""
PROMPTS_TOKENS_MAX = 2**18
"""Of all prompts of one body together; more if the model takes one prompt that is longer."""
PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1
LOGPROBS_VALUES_MAX = 2**20
"""Of one body whose answers are not streamed: tokens, times alternatives and one. Each takes some 130 bytes of memory."""
LOGPROBS_MAX = 20
"""Alternatives of one token, beside the chosen one; 0 is allowed."""
PROMPT_LOGPROBS_VALUES_MAX = 2**17
"""Of one request: the tokens of its prompt, times `prompt_logprobs` and one. Each takes some 130 bytes of memory."""
PENALTY_MIN, PENALTY_MAX = -2.0, 2.0
"""Both included, for frequency_penalty and presence_penalty; 0 is off."""
REPETITION_PENALTY_MIN, REPETITION_PENALTY_MAX = 0.01, 10.0
"""Both included; 1 is off. A smaller one would make logits that float32 cannot hold."""
MIN_P_MIN, MIN_P_MAX = 0.0, 1.0
"""Both included; 0 is off."""
LOGIT_BIAS_MIN, LOGIT_BIAS_MAX = -100.0, 100.0
"""Both included, for one token."""
LOGIT_BIAS_TOKENS_MAX = 1024
CACHE_SALT_CHARACTERS_MAX = 256
GRAMMAR_BYTES_MAX = 128 * 2**10
"""For a JSON schema, a grammar, or a list of choices as JSON."""
REGEX_BYTES_MAX = 8 * 2**10
CHOICES_MAX = 1_000
GRAMMAR_SECONDS_MAX = 2.0
"""Until a grammar compiles, with the first tokens that it allows."""

DEADLINE_HEADER = "x-llmendpoint-deadline-ms"
DEADLINE_MS_MIN, DEADLINE_MS_MAX = 1, 86_400_000
"""Both included; the second is a day."""

BODY_BYTES_MAX = 16 * 2**20
"""For any body. While one is decoded, nothing else runs in the process: 5 ms for each MiB of escapes."""
BODY_BYTES_FLOOR, BODY_BYTES_PER_TOKEN = 8 * 2**20, 24
"""A model takes bodies up to the first, or up to the second for each token of its length if that is more. A token of
text has about 4 bytes, one of escaped Cyrillic 24, a token id with its comma 8."""
WIDE_CHARACTERS_FLOOR, WIDE_CHARACTERS_PER_TOKEN = 2**20, 6
"""The most characters of a body with a character outside the Basic Multilingual Plane: the first, and the second for
each token of the model's length. Each character of its text takes 4 bytes in memory."""
BODY_VALUES_MAX = 65_536
"""Fields and list items of a body. A list of token ids may have one more for each token of the model's length."""
INPUTS_MAX = 2_048
"""Texts of one body that get a vector each."""
RANKED_MAX = 1_024
"""Texts that are ranked by one body, or scored."""
INPUTS_TOKENS_MAX = 2**19
"""Of all of them together."""
VECTOR_VALUES_MAX = 2**22
"""Numbers of all vectors of one answer: 16 MiB, and about 90 MB of JSON."""
TOKENS_COUNTED_FLOOR, TOKENS_COUNTED_LENGTHS = 2**18, 2
"""The most tokens that /tokenize and /detokenize take: the first, or so many times the model's length if that is more.
What is counted may be longer than a prompt; a tokenizer takes some 150 bytes for each token."""
BODY_SECONDS_MAX = 120.0
"""From the end of the headers to the end of the body."""
LARGE_BODY_SECONDS_MAX = 5.0
"""From when a body over 1 MiB got one of the few places until its end. Others wait longer than this for a place."""
HEADER_BYTES_MAX = 64 * 2**10
"""For the request line and all headers together."""
HEADER_SECONDS_MAX = 75.0
MODEL_CHARACTERS_MAX = 512
ADAPTERS_MAX, ADAPTER_RANK_MAX = 256, 512
"""LoRA adapters of one server, and the rank of one."""
ADAPTER_NAME_MAX, ADAPTER_SOURCE_MAX = 128, 1_024
"""Characters."""
ADAPTER_CONFIG_BYTES_MAX, ADAPTER_BYTES_MAX = 2**20, 8 * 2**30
"""Of adapter_config.json and adapter_model.safetensors."""
ADAPTER_CHANGES_WAITING_MAX = 16
"""Adapters that wait to be loaded or unloaded; one more is refused with 429."""
MESSAGES_MAX = 8_192
PARTS_MAX = 1_024
"""Text parts of one message."""
TOOLS_MAX = 128
"""Functions of one request."""
TOOL_NAME_MAX = 64
TOOL_PARAMETERS_BYTES_MAX = 2**16
"""For the JSON schema of one function's parameters."""
TOOL_CALLS_MAX = 128
"""Calls in one message."""
TOOL_CALL_PARSERS = (
    "auto", "none", "deepseek_v3", "deepseek_v31", "deepseek_v32", "functiongemma", "gemma4", "glm45", "granite", "hermes",
    "kimi_k2", "llama3_json", "llama4_json", "llama4_pythonic", "minimax_m2", "mistral", "openai", "phi4_mini_json", "pythonic",
    "qwen3_coder", "qwen3_xml",
)  # fmt: skip
REASONING_PARSERS = (
    "auto", "none", "deepseek_r1", "deepseek_v3", "deepseek_v31", "deepseek_v32", "gemma4", "glm45", "granite", "kimi", "kimi_k2",
    "minimax_m2", "mistral", "qwen3", "think",
)  # fmt: skip
"""The names that the flags take; each is a format of `api/tools/readers`, by vLLM's name where it has one."""
TEMPLATE_VARIABLES_MAX, TEMPLATE_VARIABLES_BYTES_MAX = 64, 2**14
"""For `chat_template_kwargs`."""
DOCUMENTS_MAX = 256
RENDER_SECONDS_MAX = 2.0
"""For a model's chat template, which may compare each message with all others."""
NAME_CHARACTERS_MAX = 256
"""For `messages[].name`."""
CALLER_CHARACTERS_MAX = 512
"""For each field about the caller or the bill: user, safety_identifier, service_tier and their like."""
REPEATED_BYTES_MAX = 2**17
"""For the instructions, and for the tools, that a response repeats, as JSON. They are kept until its end, and a stream has
them three times."""
METADATA_PAIRS_MAX, METADATA_KEY_MAX, METADATA_VALUE_MAX = 16, 64, 512


def body_bytes(max_model_len: int) -> int:
    """The largest body that a model of this length takes."""
    return min(BODY_BYTES_MAX, max(BODY_BYTES_FLOOR, BODY_BYTES_PER_TOKEN * max_model_len))


def tokens_counted(max_model_len: int) -> int:
    """The most tokens that /tokenize and /detokenize take for a model of this length."""
    return max(TOKENS_COUNTED_FLOOR, TOKENS_COUNTED_LENGTHS * max_model_len)


def wide_characters(max_model_len: int) -> int:
    """The most characters of a body with one outside the Basic Multilingual Plane, for a model of this length."""
    return WIDE_CHARACTERS_FLOOR + WIDE_CHARACTERS_PER_TOKEN * max_model_len


def read_deadline_ms(text: str) -> int:
    """Milliseconds. Raises ValueError with what is allowed."""
    digits = text.strip()
    if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(DEADLINE_MS_MAX)):
        value = int(digits)
        if DEADLINE_MS_MIN <= value <= DEADLINE_MS_MAX:
            return value
    raise ValueError(f"must be a whole number of milliseconds from {DEADLINE_MS_MIN} to {DEADLINE_MS_MAX}")
