"""Bodies drawn by a seed, with all that makes streaming hard: characters of several tokens, stop strings, tools, structured
output, reasoning, several answers."""

from __future__ import annotations

import json
import random
from typing import Any

from server.tests.api.tools.answers import CASES
from server.tests.api.tools.answers import SCHEMAS as FUNCTIONS

Body = dict[str, Any]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

WORDS = (
    *("rollout", "replica", "What is", "the endpoint", "naïve", "ﬁne", "Ω", "日本語", "東京は", "한국어", "中文字符", "ไทย"),
    *("שלום", "مرحبا بالعالم", "\u200fعربي\u200e", "🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "e\u0301", "a\u0308\u0323", "क्षि", "𝔘𝔫𝔦", "𠜎", "\ufeff", "�"),
    *("\n", "\t", " ", '"', "\\", "{", "}", "<", "</s>", "<think>", "&amp;", "\u2028", "\x00", "."),
)  # fmt: skip
"""Of one script or another, written in both directions, joined and combined, and what has a meaning in JSON and in templates."""
STOPS = (" ", ".", "\n", "the", " rollout", "é", "🙂", "日", "\u0301", "a replica", "zzz", '"', "ro")
SCHEMAS: tuple[Body, ...] = (
    {"enum": ["日本語 🙂", "e\u0301\u0323", "שלום", 'a "quote"', "👩‍👩‍👧‍👦", None]},
    {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 6}, "size": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["word", "size"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["🇩🇪", "ﬁ", "x"]}, "minItems": 1, "maxItems": 3},
)  # fmt: skip
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "strict": True, "parameters": schema | {
        "properties": {key: value | ({"maxLength": 8} if value["type"] == "string" else {})
                       for key, value in schema["properties"].items()},
        "required": list(schema["properties"]), "additionalProperties": False}}}
    for name, schema in FUNCTIONS.items()
]  # fmt: skip


def text(chance: random.Random, most: int = 8) -> str:
    joint = chance.choice(("", " "))
    return joint.join(chance.choices(WORDS, k=chance.randint(1, most)))


def of_the_real_engine(number: int) -> tuple[str, Body]:
    """Path and body of one request that a model answers."""
    chance = random.Random(number)
    body: Body = {"model": "demo", "max_tokens": chance.randint(1, 24), "seed": number}
    body |= {"temperature": chance.choice((0, 1, 1, 2)), "n": chance.choice((1, 1, 1, 2, 3))}
    if chance.random() < 0.5:
        body["stop"] = chance.sample(STOPS, chance.randint(1, 4))
        body["include_stop_str_in_output"] = chance.random() < 0.3
    if chance.random() < 0.2:
        body["logit_bias"] = {str(chance.randrange(1761)): 5}
        body["frequency_penalty"] = 1
    if chance.random() < 0.3:
        return TEXT, body | {"prompt": text(chance), "echo": chance.random() < 0.3} | _structured(chance)
    body["messages"] = [{"role": "user", "content": text(chance)}]
    if chance.random() < 0.5:
        return CHAT, body | _structured(chance)
    choice: Any = chance.choice(
        ("auto", "required", {"type": "function", "function": {"name": "get_weather"}})
    )
    most = chance.choice((24, 60))
    return CHAT, body | {"tools": TOOLS, "tool_choice": choice, "max_tokens": most}


def _structured(chance: random.Random) -> Body:
    match chance.randrange(6):
        case 0:
            schema = chance.choice(SCHEMAS)
            return {
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
            }
        case 1:
            return {"structured_outputs": {"choice": [text(random.Random(at)) for at in range(5)]}}
        case 2:
            return {"structured_outputs": {"regex": "[א-ת]{1,4}🙂(日|e\u0301)[\\x{1F300}-\\x{1F320}]{0,3}"}}
        case _:
            return {}


def spoken(number: int) -> tuple[str, Body]:
    """Of an engine that says what stands between the marks: calls of tools, thoughts and text, whole or cut."""
    chance = random.Random(number)
    calls = [case.text for case in CASES if case.format == "hermes"]
    parts = [
        text(chance),
        "",
        chance.choice(calls),
        text(chance),
        chance.choice(calls),
        '<tool_call>{"name": ',
    ]
    said = "".join(chance.sample(parts, chance.randint(1, 3)))
    if chance.random() < 0.3:
        said = f"<think>\n{text(chance)}\n</think>\n\n" + said
    call = json.dumps({"name": "get_weather", "arguments": {"city": text(chance)}}, ensure_ascii=False)
    if chance.random() < 0.5:
        said += f"\n<tool_call>\n{call}\n</tool_call>"
    body: Body = {"model": "demo", "messages": [{"role": "user", "content": f"SAY<<<{said}>>>END"}]}
    body |= {"n": chance.choice((1, 1, 2)), "max_tokens": chance.choice((3, 40, 100, 1000))}
    if chance.random() < 0.3:
        body["stop"] = chance.sample(STOPS, 2)
    if chance.random() < 0.8:
        plain = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in FUNCTIONS.items()]  # fmt: skip
        body |= {"tools": plain, "parallel_tool_calls": chance.random() < 0.7}
    return CHAT, body | {"include_reasoning": chance.random() < 0.8}
