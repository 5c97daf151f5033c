"""docs/contribute/contracts.md: whatever a body holds, it is taken or refused with words: nothing else comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.api.explain import FORMS
from llmendpoint_server.api.schemas import UNSUPPORTED, ChatBody, CompletionBody, GenerationBody, parse_body
from llmendpoint_server.errors import InvalidRequest

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["user", "tool", "text", "image_url", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "name", "tool_calls"]) | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from([*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__]) | st.text(
    max_size=5
)


def judge(kind: type[GenerationBody], data: bytes) -> InvalidRequest | None:
    try:
        body = parse_body(kind, data)
        if isinstance(body, ChatBody):
            for at, message in enumerate(body.messages):
                assert set(message.for_template(f"messages[{at}]")) <= {"role", "content", "name"}
        elif isinstance(body, CompletionBody):
            body.prompts()
    except InvalidRequest as refusal:
        return refusal
    return None


@settings(max_examples=500)
@given(st.sampled_from([ChatBody, CompletionBody]), st.dictionaries(FIELDS, ANYTHING, max_size=5))
def test_a_body_is_taken_or_refused_whatever_its_fields_hold(
    kind: type[GenerationBody], fields: dict[str, Any]
) -> None:
    body = {
        "model": "m",
        "messages" if kind is ChatBody else "prompt": [{"role": "user", "content": "x"}],
    } | fields
    refusal = judge(kind, json.dumps(body).encode())
    if refusal is not None:
        assert len(refusal.message) <= 1000
        assert "`" not in refusal.message.replace(str(refusal.param), "")  # nothing of msgspec's own words


@given(st.sampled_from([ChatBody, CompletionBody]), st.binary(max_size=60), st.binary(max_size=60))
def test_bytes_are_taken_or_refused(kind: type[GenerationBody], start: bytes, end: bytes) -> None:
    for data in (
        start,
        b'{"model":"m","prompt":"' + start + b'"}',
        b'{"tools":' + start + b',"model":' + end + b"}",
    ):
        judge(kind, data)


@pytest.mark.parametrize("kind", [ChatBody, CompletionBody])
def test_every_field_says_what_it_must_be(kind: type[GenerationBody]) -> None:
    assert {field for field in kind.__struct_fields__ if field not in FORMS} <= set(UNSUPPORTED)
