"""OpenAI's two completion routes as clients know them: an OpenAPI document for schemathesis.

It is wider than what this server serves, on purpose: a client sends what OpenAI documents, and a field that is not
served must be a clear 400.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"

STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
BOOLEAN: Json = {"type": ["boolean", "null"]}
STRINGS: Json = {"type": "array", "items": STRING}
MODEL: Json = {"type": "string", "enum": ["team/fuzz", "fuzz"]}

SAMPLING: Json = {
    "stream": BOOLEAN,
    "stream_options": {"type": "object", "properties": {"include_usage": BOOLEAN}},
    "max_tokens": {"type": ["integer", "null"], "maximum": 4},
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
    "top_p": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "top_k": {"type": ["integer", "null"]},
    "min_p": NUMBER,
    "seed": {"type": ["integer", "null"]},
    "n": {"type": "integer", "minimum": 1, "maximum": 128},
    "stop": {"anyOf": [STRING, {**STRINGS, "maxItems": 4}, {"type": "null"}]},
    "stop_token_ids": {"type": "array", "items": {"type": "integer"}},
    "ignore_eos": BOOLEAN,
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "logit_bias": {"type": "object", "additionalProperties": NUMBER},
    "user": STRING,
    "metadata": {"type": "object", "additionalProperties": STRING},
    "store": BOOLEAN,
    "service_tier": STRING,
}

PART: Json = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["text", "image_url", "input_audio"]}, "text": STRING},
}
MESSAGE: Json = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [STRING, {"type": "array", "items": PART, "maxItems": 4}, {"type": "null"}]},
        "name": STRING,
        "tool_call_id": STRING,
        "tool_calls": {"type": "array", "items": {"type": "object"}},
    },
}
CHAT_BODY: Json = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        **SAMPLING,
        "model": MODEL,
        "messages": {"type": "array", "items": MESSAGE, "minItems": 1, "maxItems": 4},
        "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
        "logprobs": BOOLEAN,
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
        "tools": {"type": "array", "items": {"type": "object"}},
        "response_format": {"type": "object", "properties": {"type": STRING}},
    },
}
TEXT_BODY: Json = {
    "type": "object",
    "required": ["model", "prompt"],
    "properties": {
        **SAMPLING,
        "model": MODEL,
        "prompt": {
            "anyOf": [
                STRING,
                {**STRINGS, "maxItems": 3},
                {"type": "array", "items": {"type": "integer"}, "maxItems": 8},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "maxItems": 2},
            ]
        },
        "echo": BOOLEAN,
        "logprobs": {"type": "integer", "minimum": 0, "maximum": 5},
        "best_of": {"type": "integer", "minimum": 0, "maximum": 20},
        "suffix": STRING,
    },
}


def operation(body: Json) -> Json:
    content = {"application/json": {"schema": body}}
    return {
        "post": {
            "requestBody": {"required": True, "content": content},
            "responses": {"200": {"description": "the answer"}},
        }
    }


DOCUMENT: Json = {
    "openapi": "3.1.0",
    "info": {"title": "Completions", "version": "1"},
    "paths": {CHAT: operation(CHAT_BODY), TEXT: operation(TEXT_BODY)},
}
