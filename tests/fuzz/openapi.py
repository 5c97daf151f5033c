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
ANY: Json = {"type": ["object", "boolean", "string", "null"]}
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
    "repetition_penalty": NUMBER,
    "min_tokens": {"type": "integer", "maximum": 4},
    "best_of": {"type": "integer", "minimum": 0, "maximum": 20},
    "prompt_logprobs": {"type": ["integer", "null"], "maximum": 20},
    "response_format": {"anyOf": [
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]},
         "json_schema": {"type": "object", "properties": {"name": STRING, "schema": ANY, "strict": BOOLEAN}}}},
        {"type": "null"},
    ]},
    "structured_outputs": {"type": "object", "properties": {
        "json": ANY, "regex": STRING, "choice": {**STRINGS, "maxItems": 4}, "grammar": STRING, "json_object": BOOLEAN}},
    "include_stop_str_in_output": BOOLEAN,
    "return_token_ids": BOOLEAN,
    "return_tokens_as_token_ids": BOOLEAN,
    "skip_special_tokens": BOOLEAN,
    "add_special_tokens": BOOLEAN,
    "truncate_prompt_tokens": {"type": "integer"},
    "priority": {"type": "integer"},
}  # fmt: skip

PART: Json = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["text", "image_url", "input_audio"]}, "text": STRING},
}
FUNCTION: Json = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": STRING, "description": STRING, "parameters": ANY, "strict": BOOLEAN},
}
TOOL: Json = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["function", "custom"]}, "function": FUNCTION},
}
CALL: Json = {
    "type": "object",
    "properties": {
        "id": STRING,
        "type": {"const": "function"},
        "function": {"type": "object", "properties": {"name": STRING, "arguments": STRING}},
    },
}
NAMED: Json = {
    "type": "object",
    "properties": {
        "type": {"enum": ["function", "allowed_tools"]},
        "function": {"type": "object", "properties": {"name": STRING}},
    },
}
MESSAGE: Json = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [STRING, {"type": "array", "items": PART, "maxItems": 4}, {"type": "null"}]},
        "name": STRING,
        "tool_call_id": STRING,
        "tool_calls": {"type": "array", "maxItems": 3, "items": CALL},
        "reasoning_content": {"type": ["string", "null"]},
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
        "tools": {"type": "array", "items": TOOL, "maxItems": 3},
        "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required"]}, NAMED]},
        "parallel_tool_calls": BOOLEAN,
        "reasoning_effort": {"enum": ["none", "low", "high", None]},
        "chat_template_kwargs": {"type": "object"},
        "documents": {"type": "array", "items": {"type": "object"}, "maxItems": 2},
        "add_generation_prompt": BOOLEAN,
        "continue_final_message": BOOLEAN,
        "include_reasoning": BOOLEAN,
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
