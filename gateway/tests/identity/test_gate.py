"""docs/concepts/identity.md, "What follows from an identity": what a decision knows of its caller."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tests.ext_proc_caller import BODY, Caller
from gateway.tests.keys import bearer, digest, key_text, llm_key
from gateway.tests.one_endpoint import CHAT, REPLICAS, Holding, turn
from llmendpoint_gateway.core.endpoint.objects import Slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy.resources import PRIORITY_HEADER, TAG_HEADER
from llmendpoint_gateway.core.identity.authentication import Authentication
from llmendpoint_gateway.core.identity.credentials import HEADERS
from llmendpoint_gateway.core.identity.key_objects import parse_key
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.core.request.request import read_tag
from llmendpoint_gateway.serve.parts import Parts, make_parts
from llmendpoint_gateway.serve.request.reading import read_head

TIMER = SimpleNamespace(cancel=lambda: None)
ONE, OTHER, LOW, HIGH = (key_text() for _ in range(4))


async def parts_with_keys(mode: Authentication = Authentication.REQUIRED, replicas: bool = True) -> Parts:
    parts = make_parts(Holding(), lambda: 0.0, lambda *_: TIMER, 50, authentication=mode)  # type: ignore[arg-type, return-value]
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": replace(CHAT, expects=True)})
    parts.control.relisted(Kind.SLICE, {"a/s": REPLICAS if replicas else Slice("a/chat", "r1", ())})
    await turn()
    assert parts.gate is not None
    for name, text, priority in (
        ("one", ONE, "Normal"),
        ("other", OTHER, "Normal"),
        ("low", LOW, "Low"),
        ("high", HIGH, "High"),
    ):
        parts.gate.keys.put(parse_key(llm_key(text, name, "a", priority=priority)))
    await parts.gate.keys.listed({"a/one", "a/other", "a/low", "a/high"})
    return parts


async def caller_number(parts: Parts, text: str, address: str) -> int:
    caller = Caller()
    caller.asks(parts.picker, **{"x-forwarded-for": address}, **bearer(text))
    return read_tag(caller.headers[TAG_HEADER]).caller


async def test_a_caller_is_its_llmkey_wherever_it_comes_from() -> None:
    parts = await parts_with_keys()
    one = await caller_number(parts, ONE, "10.0.0.1")
    assert one == await caller_number(parts, ONE, "10.0.0.2") != 0
    assert one != await caller_number(parts, OTHER, "10.0.0.1")


async def test_two_keys_behind_one_address_take_turns_in_a_queue() -> None:
    parts = await parts_with_keys(replicas=False)
    texts = [ONE] * 5 + [OTHER]
    callers = [Caller() for _ in texts]
    for caller, text in zip(callers, texts, strict=True):
        caller.asks(parts.picker, **bearer(text))
    assert parts.held.waiting.count("a/chat") == len(texts)
    parts.control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    tickets = [read_tag(caller.headers[TAG_HEADER]).ticket for caller in callers]
    assert sorted(tickets).index(tickets[-1]) == 1


async def test_at_an_endpoint_of_another_namespace_all_keys_of_a_namespace_are_one_caller() -> None:
    """Whoever may make a key could make a thousand, and have as many turns beside the one of another tenant."""
    parts = await parts_with_keys()
    assert parts.gate is not None
    shared = replace(CHAT, expects=True, access=frozenset({"b", "c"}))
    parts.control.applied(Kind.ENDPOINT, "a/chat", shared)
    await turn()
    texts = {name: key_text() for name in ("b/one", "b/other", "c/one")}
    for name, text in texts.items():
        namespace, _, key = name.partition("/")
        parts.gate.keys.put(parse_key(llm_key(text, key, namespace, grants=[{"namespace": "a"}])))
    numbers = {name: await caller_number(parts, text, "10.0.0.1") for name, text in texts.items()}
    assert numbers["b/one"] == numbers["b/other"] != numbers["c/one"]
    own = {await caller_number(parts, text, "10.0.0.1") for text in (ONE, OTHER)}
    assert len(own | set(numbers.values()) - {0}) == 4


async def test_without_a_key_a_caller_is_its_address() -> None:
    parts = await parts_with_keys(Authentication.OPTIONAL)
    numbers = [await caller_number(parts, "unused", address) for address in ("10.0.0.1", "10.0.0.2")]
    assert numbers[0] != numbers[1]
    assert numbers[0] == await caller_number(parts, "sk-else", "10.0.0.1")


@pytest.mark.parametrize(
    ("text", "asked", "given"),
    [
        (ONE, "", Priority.NORMAL),
        (ONE, "high", Priority.NORMAL),
        (ONE, "low", Priority.LOW),
        (HIGH, "high", Priority.HIGH),
        (HIGH, "", Priority.NORMAL),
        (LOW, "high", Priority.LOW),
        (LOW, "", Priority.LOW),
        (ONE, "x" * 5000, Priority.NORMAL),
    ],
)
async def test_a_request_asks_for_no_more_than_its_key_may(text: str, asked: str, given: Priority) -> None:
    parts = await parts_with_keys()
    head = read_head(
        message(("authorization", f"Bearer {text}".encode()), (PRIORITY_HEADER, asked.encode())),
        gate=parts.gate,
    )
    assert head.priority is given


async def test_who_asks_about_the_caller_alone_gets_no_replica_and_takes_no_place() -> None:
    """Envoy's outer listener, for a large body."""
    parts = await parts_with_keys()
    for text, goes_on in ((ONE, True), (key_text(), False)):
        caller = Caller()
        parts.picker.message(caller, message(("authorization", f"Bearer {text}".encode()), large=True))  # type: ignore[arg-type]
        assert caller.state is None
        assert caller.replies[0].HasField("request_headers") is goes_on
        assert caller.replies[0].HasField("immediate_response") is not goes_on
        parts.picker.ended(caller)  # type: ignore[arg-type]
    assert parts.placement.in_flight.total() == 0


def message(*more: tuple[str, bytes], large: bool = False) -> bytes:
    """Of a request's headers, as Envoy sends them."""
    pairs = [
        (":method", b"POST"),
        (":path", b"/v1/chat/completions"),
        ("x-forwarded-for", b"10.9.9.9"),
        *more,
    ]
    headers = HeaderMap(headers=[HeaderValue(key=key, raw_value=value) for key, value in pairs])
    request = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=headers))
    request.protocol_config.request_body_mode = ProcessingMode.NONE if large else ProcessingMode.BUFFERED
    data: bytes = request.SerializeToString()
    return data


async def test_no_key_lets_anybody_in_until_all_are_read_because_an_older_llmkey_with_it_may_follow() -> None:
    parts = make_parts(Holding(), lambda: 0.0, lambda *_: TIMER, 50, authentication=Authentication.REQUIRED)  # type: ignore[arg-type, return-value]
    assert parts.gate is not None
    parts.gate.keys.put(parse_key(llm_key(ONE, "again", "a", "2026-05-01T00:00:00Z")))
    request = message(("authorization", f"Bearer {ONE}".encode()))
    before = read_head(request, gate=parts.gate)
    assert isinstance(before.who, Rejected)
    assert (before.who.code, before.key) == ("keys_unread", "")
    parts.gate.keys.put(parse_key(llm_key(ONE, "one", "a")))
    await parts.gate.keys.listed({"a/again", "a/one"})
    assert read_head(request, gate=parts.gate).key == "a/one"


TEXTS = st.one_of(
    st.binary(max_size=100),
    st.text(max_size=40).map(str.encode),
    st.integers(0, 64).map(lambda cut: b"Bearer " + ONE.encode()[:cut]),
    st.tuples(st.integers(0, 63), st.binary(min_size=1, max_size=2)).map(
        lambda e: b"Bearer " + ONE.encode()[: e[0]] + e[1] + ONE.encode()[e[0] + 1 :]
    ),
    st.sampled_from([b"llm_" + b"x" * 100_000, b"Bearer " * 1000, ONE.encode(), b"Bearer " + ONE.encode()]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HEADERS), TEXTS), max_size=4),
    st.booleans(),
    st.sampled_from([*Authentication][1:]),
)
async def test_whatever_the_headers_hold_one_request_gets_one_answer(
    headers: list[tuple[str, bytes]], large: bool, mode: Authentication
) -> None:
    parts = await parts_with_keys(mode)
    caller = Caller()
    parts.picker.message(caller, message(*headers, large=large))  # type: ignore[arg-type]
    assert len(caller.replies) == 1
    refused = caller.replies[0].HasField("immediate_response")
    if refused:
        assert caller.replies[0].immediate_response.status.code == 401
        assert caller.code == "invalid_api_key"
    keyed = [value for name, value in headers if value in (ONE.encode(), b"Bearer " + ONE.encode())]
    assert refused or keyed or mode is Authentication.OPTIONAL
    assert ONE.encode() not in caller.replies[0].SerializeToString()
    parts.picker.ended(caller)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        (
            {"hashes": [{"sha256": digest(OTHER, "a")}, {"sha256": digest(ONE, "a")}]},
            None,
        ),  # rotated: both are valid
        ({"hashes": [{"sha256": digest(OTHER, "a")}]}, "invalid_api_key"),
        ({"disabled": True}, "invalid_api_key"),
        ({"expires": "2020-01-01T00:00:00Z"}, "invalid_api_key"),
        ({"grants": [{"name": "else"}]}, "permission_denied"),
        (None, "invalid_api_key"),
    ],
)
async def test_a_request_that_waits_is_judged_again_when_its_turn_comes(
    change: dict[str, Any] | None, code: str | None
) -> None:
    """It may have waited for an hour."""
    parts = await parts_with_keys(replicas=False)
    assert parts.gate is not None
    caller = Caller()
    caller.asks(parts.picker, **bearer(ONE))
    assert parts.held.waiting.count("a/chat") == 1
    if change is None:
        parts.gate.keys.drop("a/one")
    else:
        parts.gate.keys.put(parse_key(llm_key(ONE, "one", "a", **change)))
    parts.control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code == code
    assert parts.placement.in_flight.total() == (1 if code is None else 0)


async def test_access_that_is_taken_back_counts_for_requests_that_wait() -> None:
    parts = await parts_with_keys(Authentication.OPTIONAL, replicas=False)
    caller = Caller()
    caller.asks(parts.picker)
    parts.control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, expects=True, access=frozenset()))
    parts.control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code == "permission_denied"


async def test_a_body_of_a_request_that_was_refused_changes_nothing() -> None:
    parts = await parts_with_keys()
    caller = Caller()
    caller.asks(parts.picker, BODY)
    assert caller.replies[0].immediate_response.status.code == 401
    assert parts.placement.in_flight.total() == 0


def run(*flags: str) -> Any:
    command = [sys.executable, "-m", "llmendpoint_gateway", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_batch_service_is_not_served_together_with_keys() -> None:
    done = run(
        "envoy", "--batch-service", "a:1", "--authentication", "required", "--envoy-binary", "/nowhere"
    )
    assert done.returncode == 2
    assert "--batch-service needs --authentication off" in done.stderr
    wrong = run("picker", "--authentication", "some")
    assert wrong.returncode == 2
    assert "must be off, optional or required, got 'some'" in wrong.stderr
