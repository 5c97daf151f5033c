"""docs/operate/security.md: what looks like a credential in the words of an engine, a judge or the API server is not shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.capacity.findings import inspected
from llmendpoint_operator.core.endpoint.causes import MESSAGE_LIMIT, engine_exited, last_line
from llmendpoint_operator.core.models.tasks import Stage, Task, identity_of
from llmendpoint_operator.core.sentences import REDACTED, SENTENCE_LIMIT, fitting, redacted
from llmendpoint_operator.gather import parse_request

from ..fake_cluster import NOW, FakeCluster, make_spec


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("401 for hf_AbCdEfGhIjKlMnOpQrStUv", "hf_AbCdEfGh"),
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "AKIAIOSFODNN7EXAMPLE"),
        ("key ASIAIOSFODNN7EXAMPLE is unknown", "ASIAIOSFODNN7EXAMPLE"),
        ("header Authorization: Bearer abc.def-ghi_123", "abc.def-ghi_123"),
        ("header authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("env: HF_TOKEN=mytoken99 PATH=/bin", "mytoken99"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("aws_session_token = FwoGZXIvYXdzEBYa", "FwoGZXIvYXdzEBYa"),
        ('{"password": "hunter2hunter2"}', "hunter2hunter2"),
        ("--api-key=0123456789abcdef", "0123456789abcdef"),
        ("apikey: s3cr3tvalue", "s3cr3tvalue"),
        ("GET https://user:pass@hub.example/x", "user:pass"),
        ("redis://:pass@cache:6379", ":pass"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJhbGciOiJIUzI1NiJ9"),
        ("sk-abcdefghijklmnopqrstuvwx", "sk-abcdefgh"),
        ("ghp_0123456789abcdef0123", "ghp_0123456789"),
        ("\x1b[31mHF_TOKEN\x1b[0m=mytoken99", "mytoken99"),
        ("HF_\x00TOKEN=mytoken99", "mytoken99"),
    ],
)
def test_what_looks_like_a_credential_is_not_shown(said: str, secret: str) -> None:
    shown = fitting(said)
    assert secret not in shown
    assert REDACTED in shown


@pytest.mark.parametrize(
    "said",
    [
        "revision 7d9f8c6b54 answers requests",
        "correct spec.model.source, or name a Secret with the credentials in spec.model.credentials.secretName",
        'secret "store" not found; see spec.model.credentials.secretName',
        "spec.runtime.env HF_TOKEN: only the platform sets it",
        "--max-num-batched-tokens=8192 is above max_tokens: 4096",
        "tokenizer: tokenizer.json",
        "hf://Qwen/Qwen3-8B@main at 1111111111111111111111111111111111111111",
        "image registry.example.com/llm/engine@sha256:0123 cannot be pulled",
        "GET https://hub.example.com/api/models/a/b answers 404",
    ],
)
def test_other_words_stay_as_they_are(said: str) -> None:
    assert fitting(said) == said


@given(st.text(max_size=300))
def test_it_is_one_line_without_controls_and_the_same_again(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in once)


def test_the_direction_of_a_text_is_not_turned() -> None:
    assert redacted("safe\u202egpj.exe\u200b") == "safe gpj.exe "


def test_no_part_of_a_credential_is_left_where_a_sentence_is_cut() -> None:
    said = "x" * (MESSAGE_LIMIT - 8) + " hf_AbCdEfGhIjKlMnOpQrStUvWx"
    assert "hf_" not in last_line(said)
    assert len(fitting("x" * 100_000)) == SENTENCE_LIMIT


def pod(message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 1, "message": message}}
    return {
        "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "engine", "state": state}]},
    }


def test_an_engines_last_words_are_redacted() -> None:
    cause = engine_exited(pod('{"event": "cannot log in with HF_TOKEN=hunter2hunter2"}'))
    assert cause is not None
    assert f"HF_TOKEN={REDACTED}" in cause.message


def test_the_status_of_an_endpoint_shows_no_credential() -> None:
    fake = FakeCluster(spec=make_spec())
    fake.settle(NOW)
    [found] = fake.pods[fake.target]
    found["status"]["containerStatuses"] = pod("password=hunter2hunter2")["status"]["containerStatuses"]
    fake.settle(NOW)
    assert fake.condition("Degraded")["reason"] == "EngineCrashed"
    assert "hunter2" not in json.dumps(fake.status)


NESTED = "[" * 100_000


def test_an_answer_of_nothing_but_brackets_stops_no_endpoint() -> None:
    """The parser of JSON gives up with another error than on what is no JSON."""
    assert last_line(NESTED).startswith("[[[")
    assert identity_of(Task(Stage.DONE, answer=NESTED)) is None
    found = inspected({}, (pod(NESTED),))
    assert found is not None
    assert found.problem.startswith("the Job that reads the model ended with: [[")
    request = parse_request(NESTED)
    assert request is not None
    assert request.problem
