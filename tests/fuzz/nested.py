"""Valid bodies of all routes with all that they may hold, in which values at any depth are extreme; and JSON schemas, patterns, grammars and
structural tags of any form, as structured output and as the parameters of functions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.openapi import CHAT, TEXT

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
Path = tuple[str | int, ...]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"type": "integer"}}, "required": ["city"]}  # fmt: skip
FUNCTION = {"name": "weather", "description": "d", "parameters": CITY, "strict": True}
TOOLS = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "now"}}]
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "x"}'}}
ASKED = {"role": "user", "content": "Hello"}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}],
}
TAG = {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": CITY}, "end": "</a>"}

CHATS: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "system", "content": "Be short.", "name": "s"}, PARTS, {"role": "assistant", "content": None,
     "tool_calls": [CALL], "reasoning_content": "Hm"}, {"role": "tool", "tool_call_id": "call_1", "content": "ok"}], "tools": TOOLS},
    {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    {"tools": TOOLS, "tool_choice": NAMED, "n": 2},
    {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}},
    {"tools": TOOLS, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": CITY, "strict": True}}},
    {"response_format": {"type": "json_object"}, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"response_format": {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": CITY, "end": "</a>"}], "triggers": ["<a"]}},
    {"response_format": {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<"], "tags": [TAG],
     "at_least_one": True, "stop_after_first": True}}},
    {"structured_outputs": {"json": CITY, "whitespace_pattern": " ?", "disable_any_whitespace": False}},
    {"structured_outputs": {"structural_tag": {"format": {"type": "sequence", "elements": [{"type": "const_string", "value": "a"},
     {"type": "or", "elements": [TAG, {"type": "regex", "pattern": "[a-z]+"}]}, {"type": "any_text"}]}}}},
    {"logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, "return_token_ids": True, "logit_bias": {"5": -1.5},
     "include_stop_str_in_output": True, "stop": ["a", "b"], "min_tokens": 1},
    {"chat_template_kwargs": {"enable_thinking": False}, "documents": [{"title": "t", "text": "x"}], "reasoning_effort": "low",
     "messages": [ASKED, {"role": "assistant", "content": "It is"}], "continue_final_message": True},
)  # fmt: skip
TEXTS: tuple[dict[str, Any], ...] = (
    {"prompt": ["a", "b"], "n": 2, "echo": True, "logprobs": 2},
    {"prompt": [[5, 6], [7]], "prompt_logprobs": 0, "return_tokens_as_token_ids": True},
    {"guided_choice": ["yes", "no"], "repetition_penalty": 1.2, "min_p": 0.1},
    {"guided_regex": "[a-c]{1,3}", "truncate_prompt_tokens": 3},
    {"guided_grammar": 'start: "a" /[b-d]+/'},
    {"structured_outputs": {"choice": ["a", "b"]}, "skip_special_tokens": False, "add_special_tokens": True},
)  # fmt: skip
OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((path, {"max_tokens": 2, "system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather",
         "input": {"city": "x"}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}],
        "tools": [{"name": "weather", "description": "d", "input_schema": CITY}], "tool_choice": {"type": "auto"},
        "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"}}) for path in (MESSAGES, COUNT)),
    ("/v1/tokenize", {"prompt": "Hello", "add_special_tokens": True, "return_token_strs": True}),
    ("/v1/tokenize", {"messages": [ASKED], "tools": TOOLS, "chat_template_kwargs": {"a": 1}, "add_generation_prompt": True}),
    ("/v1/detokenize", {"tokens": [1, 2, 3]}),
    ("/v1/embeddings", {"input": ["a", [1, 2]], "encoding_format": "base64", "dimensions": 8}),
    ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    ("/v1/score", {"queries": ["a"], "documents": ["b"]}),
)  # fmt: skip


def base(path: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    given = {"messages": [ASKED]} if path == CHAT else {"prompt": "Hello"} if path == TEXT else {}
    limit = {"max_tokens": 4} if path in (CHAT, TEXT) else {}
    return path, {"model": "team/fuzz", **given, **limit, **fields}


BASES = (
    *(base(CHAT, fields) for fields in CHATS),
    *(base(TEXT, fields) for fields in TEXTS),
    *(base(*one) for one in OTHERS),
)


def places(value: Any, before: Path = ()) -> Iterator[Path]:
    """Every place below it, of names and of items."""
    found: Any = ()
    if isinstance(value, dict):
        found = value.items()
    elif isinstance(value, list):
        found = enumerate(value)
    for name, one in found:
        yield (*before, name)
        yield from places(one, (*before, name))


@st.composite
def changed(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[str, dict[str, Any]]:
    """A body in which one to three values, at any depth, are other ones, are gone, or stand twice."""
    path, given = draw(st.sampled_from(BASES))
    body = copy.deepcopy(given)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([place for place in places(body) if place != ("model",)]))
        holder: Any = body
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(("replace", "replace", "replace", "remove", "nest", "again"))):
            case "replace":
                holder[last] = copy.deepcopy(draw(values))  # it may be changed again
            case "remove":
                del holder[last]
            case "nest":
                holder[last] = [holder[last]] if draw(st.booleans()) else {"type": holder[last]}
            case "again" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
        if not any(place != ("model",) for place in places(body)):
            break
    return path, body


KEYWORDS = (
    "minimum",
    "maxLength",
    "minItems",
    "maxItems",
    "multipleOf",
    "minProperties",
    "additionalProperties",
    "uniqueItems",
)
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
REFERENCES = ("#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/allOf/0", "#a", "https://example.com/a", "")


def schemas(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON schemas that are right, nearly right, and wrong."""
    leaf = st.one_of(
        st.sampled_from(TYPES).map(lambda kind: {"type": kind}),
        st.sampled_from(REFERENCES).map(lambda where: {"$ref": where}),
        st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["a", "é🙂", 1, None, {"a": [1]}, '"']), max_size=4)}),
        st.fixed_dictionaries(
            {"type": st.sampled_from(TYPES)},
            optional={"pattern": st.sampled_from(("^a+$", "(", "(?=a)", "a{1,9999}", "[")), "format": st.sampled_from(("date", "ipv6", "x")),
                      "minLength": st.integers(-2, 9), **dict.fromkeys(KEYWORDS, values)},
        ),
        st.booleans(),
    )  # fmt: skip

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        named = st.dictionaries(st.sampled_from(("a", "b", "c d", "é", "")), inner, max_size=3)
        several = st.lists(inner, max_size=3)
        return st.fixed_dictionaries(
            {},
            optional={
                "type": st.just("object"), "properties": named, "required": st.lists(st.sampled_from(("a", "b", "z")), max_size=2),
                "$defs": named, "patternProperties": st.dictionaries(st.sampled_from(("^a", "(", "")), inner, max_size=1),
                "allOf": several, "anyOf": several, "oneOf": several, "not": inner, "items": inner, "prefixItems": several,
                "additionalProperties": inner, "$ref": st.sampled_from(REFERENCES),
            },
        )  # fmt: skip

    return st.recursive(
        st.deferred(lambda: leaf), larger, max_leaves=10
    )  # deferred: what is shown of it is short


@st.composite
def grammars(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[str, dict[str, Any]]:
    """A body whose answer must follow what is drawn."""
    schema = draw(schemas(values))
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": schema, "strict": draw(st.booleans())},
    }
    tag = {
        "type": "tag",
        "begin": draw(st.text(max_size=3)),
        "content": {"type": "json_schema", "json_schema": schema},
        "end": "e",
    }
    pattern = draw(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(("(a|b)*", "(.{1,1000}){1,1000}", "[^a]{3}", "\\d+$", "\\p{L}")),
        )
    )
    lark = draw(st.one_of(st.text(max_size=20), st.sampled_from(
        ('start: "a"', "start: start", 'start: x\nx: "a" x |', "start: %json {}", 'root ::= "a" | root "b"', "start: /(/", "%llguidance {}"))))  # fmt: skip
    asked: list[dict[str, Any]] = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
        {"structured_outputs": {"json": schema, "whitespace_pattern": pattern}},
        {"tools": [tool], "tool_choice": draw(st.sampled_from(("auto", "required", "none")))},
        {"tools": [tool, *TOOLS], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
        {"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [tag, {"type": "any_text"}]}}},
        {"structured_outputs": {"regex": pattern}},
        {"guided_grammar": lark},
        {"guided_choice": draw(st.lists(st.text(max_size=4), max_size=5))},
    ]  # fmt: skip
    body: dict[str, Any] = {"max_tokens": 8, "temperature": draw(st.sampled_from((0, 1)))}
    return base(CHAT, body | draw(st.sampled_from(asked)))
