"""docs/concepts/tools.md: chat templates of different manners are rendered as transformers does, and get messages as they want them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from llmendpoint_server.api.chat_options import ChatOptions, TooSlow
from llmendpoint_server.api.template_style import Style, find_style
from llmendpoint_server.api.templates import ChatTemplate
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.weights.locate import resolve_model

CALLS_AS_OBJECTS = """\
{%- if tools %}<|s|>{% if messages[0].role == 'system' %}{{ messages[0].content + '\n' }}{% endif %}
{%- for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|e|>
{%- elif messages[0].role == 'system' %}<|s|>{{ messages[0].content }}<|e|>{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}<|u|>{{ message.content }}<|e|>
{%- elif message.role == 'assistant' %}<|a|>
{%- if message.reasoning_content and loop.last %}<think>{{ message.reasoning_content.strip('\n') }}</think>{% endif %}
{{- message.content or '' }}
{%- for tool_call in message.tool_calls or [] %}<tool_call>{"name": "{{ tool_call.function.name }}", "arguments": {{ tool_call.function.arguments | tojson }}}</tool_call>{% endfor %}<|e|>
{%- elif message.role == 'tool' %}<tool_response>{{ message.content }}</tool_response>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|a|>{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"""
CALLS_AS_TEXT = """\
{{ bos_token }}{% set ns = namespace(first=true) %}{% for message in messages %}
{%- if message['role'] == 'user' %}<U>{{ message['content'] }}{% endif %}
{%- if message['role'] == 'assistant' and message['content'] is none %}
{%- for tool in message['tool_calls'] %}{% if ns.first %}<calls>{% set ns.first = false %}{% endif %}<call>{{ tool['type'] + '<sep>' + tool['function']['name'] + '\n```json\n' + tool['function']['arguments'] + '\n```' }}</call>{% endfor %}</calls>
{%- elif message['role'] == 'assistant' %}<A>{{ message['content'] }}{{ eos_token }}{% endif %}
{%- if message['role'] == 'tool' %}<out>{{ message['content'] }}</out>{% endif %}
{%- endfor %}{% if add_generation_prompt %}<A>{% endif %}{% if tools %}{{ tools | tojson(indent=1, separators=(',', ':'), sort_keys=true) }}{% endif %}"""
STRICT_TURNS = """\
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif -%}
{{ bos_token }}{% for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}
{{- '<t>' + role + '\n' + (message.content | trim) + '<e>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<t>model\n' }}{% endif %}"""
PARTS = """\
{%- macro show(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}{% endfor %}{% endif %}{% endmacro -%}
{%- for message in messages %}{% if message.content is none %}{% continue %}{% endif %}{{ message.role }}: {{ show(message.content) }}
{% generation %}{% endgeneration %}{% endfor %}{% if add_generation_prompt %}{{ strftime_now('%Y') }}:{% endif %}"""
PARTS_ALONE = "{% for message in messages %}{{ message.role }}:{% for part in message['content'] %}{{ part['text'] }};{% endfor %}{% endfor %}"
CHANNELS = """\
{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort if reasoning_effort is defined else 'medium') + '<|end|>' }}
{%- if tools %}{% for tool in tools %}{{ 'type ' + tool.function.name + (tool.function.parameters.properties | dictsort | string) }}{% endfor %}{% endif %}
{%- set last = namespace(name=none) %}
{%- for message in messages %}
{%- if message.role == 'assistant' and 'tool_calls' in message %}
{%- if 'thinking' in message %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}{% endif %}
{%- set last.name = message.tool_calls[0].function.name %}
{{- '<|start|>assistant to=functions.' + last.name + '<|channel|>commentary json<|message|>' + message.tool_calls[0].function.arguments | tojson + '<|call|>' }}
{%- elif message.role == 'tool' %}{{ '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + message.content | tojson + '<|end|>' }}
{%- else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f", "description": "é <b>",
            "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}},
        },
    }
]  # fmt: skip
QUESTION = {"role": "user", "content": " What's <this> & é?\n"}
CALL = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "f", "arguments": {"b": "é \"x\" 'y'", "a": 1}},
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "42"}
SYSTEM = {"role": "system", "content": "Be brief."}


def calling(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [CALL], **fields}


def calling_as_text() -> dict[str, Any]:
    function = {"name": "f", "arguments": json.dumps(CALL["function"]["arguments"], ensure_ascii=False)}  # type: ignore[index]  # see above
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": function}]}


def theirs(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    rendered, _ = render_jinja_template(
        conversations=[messages], chat_template=source, **{"add_generation_prompt": True} | options, **SPECIAL
    )
    return str(rendered[0])


@pytest.fixture
def model(tmp_path: Path) -> Callable[[str], ModelTokenizer]:
    def make(source: str) -> ModelTokenizer:
        folder = Path(shutil.copytree(resolve_model("embedded://demo"), tmp_path / "model"))
        (folder / "chat_template.jinja").write_text(source)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | SPECIAL))
        return ModelTokenizer(folder)

    return make


ANSWER = {"role": "assistant", "content": "Hi.", "reasoning_content": "\nHm.\n"}
GIVEN: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None, dict[str, Any]]] = [
    (CALLS_AS_OBJECTS, [SYSTEM, QUESTION], None, {}),
    (CALLS_AS_OBJECTS, [SYSTEM, QUESTION], None, {"tools": TOOLS}),
    (CALLS_AS_OBJECTS, [QUESTION, calling(content=""), RESULT], [QUESTION, calling(), RESULT], {"tools": TOOLS}),
    (CALLS_AS_OBJECTS, [QUESTION, ANSWER], None, {}),
    (CALLS_AS_OBJECTS, [QUESTION], None, {"enable_thinking": False}),
    (CALLS_AS_OBJECTS, [QUESTION], None, {"add_generation_prompt": False}),
    (CALLS_AS_TEXT, [QUESTION, calling(content=""), RESULT], [QUESTION, calling_as_text(), RESULT], {"tools": TOOLS}),
    (CALLS_AS_TEXT, [QUESTION, ANSWER, QUESTION], None, {}),
    (STRICT_TURNS, [QUESTION, ANSWER, QUESTION], None, {}),
    (PARTS, [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ANSWER], None, {}),
    (PARTS_ALONE, [{"role": "user", "content": "a"}],
     [{"role": "user", "content": [{"type": "text", "text": "a"}]}], {}),
    (CHANNELS, [QUESTION, calling(content="", reasoning_content="Hm."), RESULT],
     [QUESTION, calling(thinking="Hm."), RESULT], {"tools": TOOLS, "reasoning_effort": "high"}),
    (CHANNELS, [SYSTEM, QUESTION], None, {}),
]  # fmt: skip
"""A template, the messages as this server has them, as they have to be given to transformers, and the options."""


def options_of(given: dict[str, Any]) -> ChatOptions:
    own = {name: given[name] for name in ("tools", "add_generation_prompt") if name in given}
    return ChatOptions(**own, variables={name: value for name, value in given.items() if name not in own})


@pytest.mark.parametrize(("source", "messages", "for_theirs", "options"), GIVEN)
def test_a_chat_is_rendered_as_transformers_does(
    source: str,
    messages: Any,
    for_theirs: Any,
    options: dict[str, Any],
    model: Callable[[str], ModelTokenizer],
) -> None:
    ours = model(source).render_chat(messages, options_of(options))
    assert ours == theirs(source, for_theirs or messages, **options)


@pytest.mark.parametrize("source", [CALLS_AS_OBJECTS, CALLS_AS_TEXT, STRICT_TURNS, PARTS])
@pytest.mark.parametrize("text", ["Once upon", "Once upon \n", "two\n\nlines"])
def test_the_last_message_is_continued_as_transformers_does(
    source: str, text: str, model: Callable[[str], ModelTokenizer]
) -> None:
    messages = [QUESTION, {"role": "assistant", "content": text}]
    ours = model(source).render_chat(messages, ChatOptions(continue_final=True))
    expected = theirs(source, messages, add_generation_prompt=False, continue_final_message=True)
    assert ours.rstrip() == expected.rstrip()


@pytest.mark.parametrize(
    ("source", "style"),
    [
        (CALLS_AS_OBJECTS, Style(True, True, "object", "missing", "joined", True)),
        (CALLS_AS_TEXT, Style(True, True, "text", "null", "joined", False)),
        (STRICT_TURNS, Style(False, False, "object", "missing", "joined", False)),
        (PARTS, Style(False, False, "object", "missing", "kept", True)),
        (PARTS_ALONE, Style(False, False, "object", "missing", "always", True)),
        (CHANNELS, Style(True, True, "object", "missing", "joined", True)),
    ],
)
def test_what_a_template_wants_is_found_by_trying_it(source: str, style: Style) -> None:
    assert find_style(ChatTemplate(source, SPECIAL)) == style


def test_a_template_that_knows_no_tools_gets_them_as_text(model: Callable[[str], ModelTokenizer]) -> None:
    messages = [QUESTION, calling(content="I look."), RESULT, {**RESULT, "content": "43"}]
    text = model(STRICT_TURNS).render_chat(messages, ChatOptions(tools=TOOLS))
    user, called, results = (part.partition("\n")[2] for part in text.split("<t>")[1:4])
    assert json.dumps(TOOLS[0], ensure_ascii=False) in user
    assert user.endswith("What's <this> & é?<e>\n")
    assert called.startswith('I look.\n<tool_call>\n{"name": "f", "arguments": {"b": ')
    assert results.count("<tool_response>") == 2


def test_a_model_with_several_templates_takes_that_for_tools_when_there_are_some(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(resolve_model("embedded://demo"), tmp_path / "model"))
    path = folder / "tokenizer_config.json"
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools[0].function.name }}"},
    ]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": named}))
    tokenizer = ModelTokenizer(folder)
    assert tokenizer.render_chat([QUESTION]) == "plain"
    assert tokenizer.render_chat([QUESTION], ChatOptions(tools=TOOLS)) == "f"


SLOW = "{% for a in messages %}{% for b in messages %}{% if a.content == b.content and a.role != b.role %}x{% endif %}{% endfor %}{% endfor %}"


def test_a_template_that_compares_all_messages_is_stopped(model: Callable[[str], ModelTokenizer]) -> None:
    tokenizer = model(SLOW)
    messages = [QUESTION] * 8_000
    with pytest.raises(TooSlow):
        tokenizer.render_chat(messages, seconds=0.01)
    began = time.monotonic()
    with pytest.raises(InvalidRequest, match="send fewer") as caught:
        tokenizer.render_chat(messages)
    assert caught.value.param == "messages"
    assert time.monotonic() - began < 30  # without a bound it takes minutes


@pytest.mark.parametrize(
    "source",
    [
        "{% set n = namespace(a=1) %}{% set n._x = 2 %}",
        "{{ namespace(**{'__class__': 1}) }}",
    ],
)
def test_a_template_reaches_nothing_of_python(source: str, model: Callable[[str], ModelTokenizer]) -> None:
    with pytest.raises(InvalidRequest, match="chat template"):
        model(source).render_chat([QUESTION])
