"""docs/concepts/structured-output.md: the real `openai` SDK gets what it asks for, and a grammar that cannot be used is refused."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

from server.tests.api.served import children
from server.tests.server_process import ServerProcess

MESSAGES: Any = [{"role": "user", "content": "What is a rollout?"}]
SCHEMA = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["sure", "size"],
    "additionalProperties": False,
}
TAGGED = {"begin": "<a>", "schema": SCHEMA, "end": "</a>"}
ANSWERED = {
    "type": "sequence",
    "elements": [
        {"type": "const_string", "value": "So: "},
        {
            "type": "tag",
            "begin": "<a>",
            "content": {"type": "json_schema", "json_schema": SCHEMA},
            "end": "</a>",
        },
        {"type": "const_string", "value": "!"},
    ],
}
GBNF = 'root ::= ("yes" | "no") " " [0-9]'


class Verdict(BaseModel):
    colour: Literal["red", "green"]
    points: int = Field(ge=0, le=10)
    words: list[Literal["a", "b"]] = Field(max_length=3)


def asked(client: openai.OpenAI, **fields: Any) -> str:
    answer = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=200, **_split(fields))
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content or ""


def _split(fields: dict[str, Any]) -> dict[str, Any]:
    own = {
        name: fields.pop(name) for name in list(fields) if name in ("response_format", "temperature", "seed")
    }
    return own | {"extra_body": fields}


def schema_format(schema: Any, strict: bool | None = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def test_a_pydantic_model_is_parsed_by_the_sdk(demo: openai.OpenAI) -> None:
    for seed in range(3):
        answer = demo.chat.completions.parse(
            model="demo", messages=MESSAGES, response_format=Verdict, temperature=1, seed=seed, max_tokens=200
        )
        assert isinstance(answer.choices[0].message.parsed, Verdict)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"response_format": schema_format(SCHEMA)}, None),
        ({"response_format": schema_format(SCHEMA, strict=None)}, None),
        ({"structured_outputs": {"json": SCHEMA}}, None),
        ({"structured_outputs": {"json": json.dumps(SCHEMA), "whitespace_pattern": " ?"}}, None),
        ({"guided_json": SCHEMA}, None),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            r'\{"sure":\w+,"size":\d+\}',
        ),
        ({"structured_outputs": {"regex": "[a-c]{3}-\\d"}}, r"[a-c]{3}-\d"),
        ({"guided_regex": "[a-c]{3}-\\d"}, r"[a-c]{3}-\d"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"structured_outputs": {"grammar": 'start: "x=" /[0-9]{2}/'}}, r"x=\d\d"),
        ({"guided_grammar": GBNF}, r"(yes|no) \d"),
        ({"response_format": {"type": "text"}, "guided_choice": ["yes"]}, "yes"),
        ({"response_format": {"type": "structural_tag", "format": ANSWERED}}, r"So: <a>\{[^<]*\}</a>!"),
        (
            {"structured_outputs": {"structural_tag": json.dumps({"format": ANSWERED})}},
            r"So: <a>\{[^<]*\}</a>!",
        ),
    ],
)
def test_the_answer_follows_what_was_asked_for(fields: Any, pattern: str | None, demo: openai.OpenAI) -> None:
    text = asked(demo, **fields)
    if pattern is None:
        assert set(json.loads(text)) == {"sure", "size"}
    else:
        assert re.fullmatch(pattern, text)


def test_json_object_gives_an_object_and_max_tokens_may_cut_it(demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.create(
        model="demo", messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=40
    )
    [choice] = answer.choices
    assert (choice.message.content or "").startswith("{")
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content or ""), dict)


def test_a_streamed_answer_is_the_whole_one(demo: openai.OpenAI) -> None:
    fields: Any = {"response_format": schema_format(SCHEMA), "temperature": 1.0, "seed": 4}
    whole = asked(demo, **fields)
    chunks = demo.chat.completions.create(
        model="demo", messages=MESSAGES, max_tokens=200, stream=True, **_split(dict(fields))
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_a_completion_takes_the_same_fields(demo: openai.OpenAI) -> None:
    answer = demo.completions.create(
        model="demo", prompt="Well,", extra_body={"guided_choice": ["yes", "no"]}
    )
    assert answer.choices[0].text in ("yes", "no")


SCHEMA_FIELD = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": schema_format({"not": {"type": "string"}})}, SCHEMA_FIELD, "not"),
        ({"response_format": schema_format({"type": "objct"})}, SCHEMA_FIELD, "objct"),
        ({"response_format": schema_format({"$ref": "#"})}, SCHEMA_FIELD, "no text follows it"),
        (
            {
                "response_format": schema_format(
                    {
                        "type": "object",
                        "properties": {"a": SCHEMA, "b": {"$ref": "#"}},
                        "required": ["a", "b"],
                    }
                )
            },
            SCHEMA_FIELD,
            "required property 'b' is unsatisfiable",
        ),
        ({"response_format": schema_format({"$ref": "https://example.com/x"})}, SCHEMA_FIELD, "example.com"),
        ({"response_format": schema_format([])}, SCHEMA_FIELD, "must be a JSON schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "Missing"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, SCHEMA_FIELD, "Missing"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "'json_object'"),
        ({"response_format": []}, "response_format", "must be an object"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
        (
            {"structured_outputs": {"structural_tag": "{}"}},
            "structured_outputs.structural_tag",
            "either format, or structures",
        ),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "tag"}}},
            "response_format",
            "begin",
        ),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "grammar"}}},
            "response_format",
            "const_string",
        ),
        (
            {"response_format": {"type": "structural_tag", "structures": [TAGGED], "triggers": ["<tool"]}},
            "response_format",
            "is the beginning of no tag's begin",
        ),
        ({"structured_outputs": {"choice": []}}, "structured_outputs", "length"),
        ({"structured_outputs": {"choice": ["a"] * 1001}}, "structured_outputs", "1000"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"regex": "(a)\\1"}}, "structured_outputs.regex", "backreferences"),
        ({"structured_outputs": {"regex": "a" * 9000}}, "structured_outputs.regex", "8192"),
        ({"structured_outputs": {"grammar": "start: nowhere"}}, "structured_outputs.grammar", "nowhere"),
        ({"guided_grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, "guided_grammar", "nested"),
        ({"guided_regex": 5}, "guided_regex", "regular expression"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice", "exclude each other"),
    ],
)
def test_what_cannot_be_served_is_a_400_that_names_the_field(
    fields: Any, param: str, says: str, demo: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        asked(demo, **fields)
    assert refused.value.param == param
    assert says in refused.value.message


def nested(depth: int) -> str:
    return '{"type": "array", "items": ' * depth + "{}" + "}" * depth


EXPLOSIVE: dict[str, Any] = {
    "a large enum": schema_format({"enum": [f"value {place}" for place in range(60_000)]}),
    "many optional properties": schema_format(
        {"type": "object", "properties": {f"p{place}": {} for place in range(600)}}
    ),
    "very many optional properties": schema_format(
        {"type": "object", "properties": {f"p{place}": {} for place in range(4_000)}}
    ),
    "a multiple of a large number": schema_format({"type": "integer", "multipleOf": 1_000_003}),
    "10,000 alternatives": schema_format({"anyOf": [{"const": f"value {place}"} for place in range(10_000)]}),
    "deep nesting": schema_format(json.loads(nested(400))),
    "a product of alternatives": schema_format(
        {"allOf": [{"anyOf": [{"required": [f"{side}{place}"]} for side in "ab"]} for place in range(20)]}
    ),
}


@pytest.mark.parametrize("what", EXPLOSIVE)
def test_a_grammar_that_explodes_is_a_400_in_bounded_time_and_others_go_on(
    what: str, demo: openai.OpenAI
) -> None:
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        refused = pool.submit(asked, demo, response_format=EXPLOSIVE[what])
        free = demo.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5)
        assert free.choices[0].finish_reason == "length"
        with pytest.raises(openai.BadRequestError) as error:
            refused.result()
        assert time.monotonic() - began < 10
    assert error.value.param == SCHEMA_FIELD
    assert asked(demo, guided_choice=["yes"]) == "yes", "the next grammar is served"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_grammar_that_becomes_too_complex_is_its_callers_fault(streamed: bool, demo: openai.OpenAI) -> None:
    """No 5xx: the gateway would take the replica for ill, and a rollout would be rolled back."""

    def ask() -> None:
        pieces = demo.chat.completions.create(
            model="demo",
            messages=MESSAGES,
            max_tokens=400,
            temperature=2,
            seed=1,
            stream=streamed,
            extra_body={"guided_regex": "(.{0,200}a){20}"},
        )
        list(pieces)

    with pytest.raises(openai.APIError) as failed:
        ask()
    assert "too complex" in failed.value.message
    assert failed.value.type == "invalid_request_error"
    assert failed.value.param == "guided_regex"


def test_a_dead_end_deep_inside_a_grammar_is_a_400_that_says_so(demo: openai.OpenAI) -> None:
    """Nobody sees it before: it comes after text that the model chooses."""
    with pytest.raises(openai.BadRequestError, match="Remove its dead end") as refused:
        asked(demo, guided_grammar='start: "abc " /[a-z]{6,7}/ "=" dead\ndead: dead "x"')
    assert refused.value.param == "guided_grammar"


def checkers(server: ServerProcess) -> list[int]:
    """The processes that compile grammars."""
    return [
        pid
        for pid in children(server.process.pid)
        if b"grammar_checker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("noticed", [False, True])
def test_the_next_grammar_is_checked_though_the_checking_process_was_killed(
    noticed: bool, demo_server: ServerProcess, demo: openai.OpenAI
) -> None:
    """As the kernel does where memory is short."""
    asked(demo, guided_regex=f"[a-c]{{2}}{noticed}")
    old = checkers(demo_server)
    for checker in old:
        os.kill(checker, signal.SIGKILL)
    if noticed:
        demo_server.wait_for("its end", lambda: not checkers(demo_server))
    assert asked(demo, guided_regex=f"[a-c]{{3}}{noticed}").endswith(str(noticed))
    assert not set(old) & set(checkers(demo_server))


def test_a_good_grammar_that_a_busy_machine_did_not_compile_in_time_is_tried_again() -> None:
    before = "from llmendpoint_server.api import grammars; grammars.PASSING_SECONDS = 0.5\n"
    grammar = {"guided_regex": "[a-c]{4}"}
    with (
        ServerProcess("--served-model-name", "demo", fake={}, before=before) as server,
        openai.OpenAI(base_url=server.wait_ready().url + "/v1", api_key="none", max_retries=0) as client,
    ):

        def ask(**fields: Any) -> None:
            client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5, extra_body=fields)

        ask(guided_regex="[a-c]")
        with pytest.raises(openai.BadRequestError, match="did not compile within"):
            ask(guided_json=slow_to_compile(0))
        for checker in checkers(server):
            os.kill(checker, signal.SIGSTOP)
        with pytest.raises(openai.BadRequestError, match="did not compile within"):
            ask(**grammar)
        time.sleep(0.6)
        ask(**grammar)


def test_the_checking_process_has_a_limit_of_memory(demo_server: ServerProcess, demo: openai.OpenAI) -> None:
    asked(demo, guided_regex="[a-c]{5}")
    for checker in checkers(demo_server):
        most, _ = resource.prlimit(checker, resource.RLIMIT_AS)
        assert 0 < most < 2**33


def slow_to_compile(number: int) -> dict[str, Any]:
    return {"type": "integer", "multipleOf": 1_000_003 + 2 * number}


def test_many_grammars_that_explode_keep_those_of_others_waiting_for_moments_only(
    demo: openai.OpenAI,
) -> None:
    with ThreadPoolExecutor(24) as pool:
        asked(demo, guided_regex="[a-c]{7}")
        sent = [pool.submit(asked, demo, guided_json=slow_to_compile(number)) for number in range(1, 21)]
        time.sleep(0.3)
        began = time.monotonic()
        assert len(asked(demo, guided_regex="[a-c]{8}")) == 8
        assert time.monotonic() - began < 10, "20 of them take 40 s"
        assert not all(one.done() for one in sent)
        ends = [one.exception() for one in sent]
    assert all(isinstance(one, openai.BadRequestError | openai.RateLimitError) for one in ends)
    assert any(isinstance(one, openai.BadRequestError) for one in ends)


def test_grammars_that_wait_to_be_checked_have_a_bound() -> None:
    before = "from llmendpoint_server.api import grammars; grammars.WAITING_MAX = 2\n"
    with ServerProcess("--served-model-name", "demo", fake={}, before=before) as server:
        url = server.wait_ready().url + "/v1/completions"

        def ask(number: int) -> int:
            body = {"model": "demo", "prompt": "a", "max_tokens": 2, "guided_regex": f"[a-c]{{{number}}}"}
            return httpx.post(url, json=body, timeout=60).status_code

        assert ask(1) == 200
        os.kill(checkers(server)[0], signal.SIGSTOP)
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(ask, range(2, 8)))
    assert found.count(429) == 4
