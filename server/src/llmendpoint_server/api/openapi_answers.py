"""The shapes of what the server answers, as JSON schemas. The code that makes answers builds dictionaries, for speed; a test
holds real answers against these."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def obj(properties: Schema, *, optional: tuple[str, ...] = ()) -> Schema:
    """An object that has these fields, and perhaps others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TOKENS = array(COUNT)
REASON = nullable({"enum": ["stop", "length", "tool_calls"]})
STOP_REASON = nullable({"anyOf": [STRING, COUNT]})
ENTRY = obj({"token": STRING, "logprob": NUMBER, "bytes": array(COUNT)})
CHAT_LOGPROBS = nullable(
    obj(
        {
            "content": array(
                {**ENTRY, "properties": {**ENTRY["properties"], "top_logprobs": array(ENTRY)}},
            ),
            "refusal": {"type": "null"},
        }
    )
)
TEXT_LOGPROBS = nullable(
    obj(
        {
            "tokens": array(STRING),
            "token_logprobs": array(nullable(NUMBER)),
            "top_logprobs": array(nullable({"type": "object", "additionalProperties": NUMBER})),
            "text_offset": array(COUNT),
        }
    )
)
PROMPT_LOGPROBS = array(
    nullable(
        {
            "type": "object",
            "additionalProperties": obj(
                {"logprob": NUMBER, "rank": nullable(COUNT), "decoded_token": STRING}
            ),
        }
    )
)
CALLS = array(
    obj({
        "id": STRING, "type": {"const": "function"}, "function": obj({"name": STRING, "arguments": STRING}),
    })
)  # fmt: skip
MESSAGE = obj(
    {
        "role": {"const": "assistant"},
        "content": nullable(STRING),
        "refusal": {"type": "null"},
        "reasoning_content": STRING,
        "tool_calls": CALLS,
    },
    optional=("reasoning_content", "tool_calls"),
)
CHOICE = {"index": COUNT, "finish_reason": REASON, "stop_reason": STOP_REASON, "token_ids": TOKENS}
HEAD = {"id": STRING, "created": COUNT, "model": STRING}
OF_PROMPTS = obj({"prompt_tokens": COUNT, "total_tokens": COUNT})
TEXT_BLOCK = obj({"type": {"const": "text"}, "text": STRING})
THINKING_BLOCK = obj({"type": {"const": "thinking"}, "thinking": STRING, "signature": STRING})
TOOL_BLOCK = obj({"type": {"const": "tool_use"}, "id": STRING, "name": STRING, "input": {"type": "object"}})

ANSWERS: dict[str, Schema] = {
    "Error": obj(
        {
            "error": obj(
                {"message": STRING, "type": STRING, "param": nullable(STRING), "code": nullable(STRING)}
            )
        }
    ),
    "AnthropicError": obj({"type": {"const": "error"}, "error": obj({"type": STRING, "message": STRING})}),
    "AnthropicAnswer": obj(
        {
            "id": STRING,
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": STRING,
            "content": array({"anyOf": [TEXT_BLOCK, THINKING_BLOCK, TOOL_BLOCK]}),
            "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
            "stop_sequence": nullable(STRING),
            "usage": obj(
                {
                    "input_tokens": COUNT,
                    "cache_creation_input_tokens": COUNT,
                    "cache_read_input_tokens": COUNT,
                    "output_tokens": COUNT,
                }
            ),
        }
    ),
    "InputTokens": obj({"input_tokens": COUNT}),
    "Usage": obj(
        {
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "total_tokens": COUNT,
            "prompt_tokens_details": obj({"cached_tokens": COUNT}),
        }
    ),
    "ChatCompletion": obj(
        {
            **HEAD,
            "object": {"const": "chat.completion"},
            "choices": array(
                obj({**CHOICE, "message": MESSAGE, "logprobs": CHAT_LOGPROBS}, optional=("token_ids",))
            ),
            "usage": ref("Usage"),
            "prompt_token_ids": TOKENS,
            "prompt_logprobs": PROMPT_LOGPROBS,
        },
        optional=("prompt_token_ids", "prompt_logprobs"),
    ),
    "Completion": obj(
        {
            **HEAD,
            "object": {"const": "text_completion"},
            "choices": array(
                obj(
                    {
                        **CHOICE,
                        "text": STRING,
                        "logprobs": TEXT_LOGPROBS,
                        "prompt_token_ids": TOKENS,
                        "prompt_logprobs": PROMPT_LOGPROBS,
                    },
                    optional=("token_ids", "prompt_token_ids", "prompt_logprobs"),
                )
            ),
            "usage": ref("Usage"),
        }
    ),
    "Tokens": obj(
        {
            "count": COUNT,
            "max_model_len": COUNT,
            "tokens": TOKENS,
            "token_strs": nullable(array(STRING)),
        }
    ),
    "Text": obj({"prompt": STRING}),
    "Embeddings": obj(
        {
            **HEAD,
            "object": {"const": "list"},
            "data": array(
                obj(
                    {
                        "object": {"const": "embedding"},
                        "index": COUNT,
                        "embedding": {"anyOf": [array(NUMBER), STRING]},
                    }
                )
            ),
            "usage": OF_PROMPTS,
        }
    ),
    "Ranking": obj(
        {
            **HEAD,
            "results": array(
                obj(
                    {"index": COUNT, "relevance_score": NUMBER, "document": obj({"text": STRING})},
                    optional=("document",),
                )
            ),
            "usage": OF_PROMPTS,
        }
    ),
    "Scores": obj(
        {
            **HEAD,
            "object": {"const": "list"},
            "data": array(obj({"index": COUNT, "object": {"const": "score"}, "score": NUMBER})),
            "usage": OF_PROMPTS,
        }
    ),
    "Model": obj(
        {
            "id": STRING,
            "object": {"const": "model"},
            "created": COUNT,
            "owned_by": STRING,
            "max_model_len": nullable(COUNT),
            "root": STRING,
            "parent": STRING,
        },
        optional=("root", "parent"),
    ),
    "Models": obj({"object": {"const": "list"}, "data": array(ref("Model"))}),
    "Status": obj({"status": STRING, "detail": STRING}),
    "Load": obj(
        {
            "waiting": COUNT,
            "running": COUNT,
            "outstanding_tokens": COUNT,
            "kv_usage": NUMBER,
            "max_num_seqs": COUNT,
            "instance": STRING,
            "adapters": array(STRING),
        }
    ),
    "Version": obj({"version": STRING}),
}
