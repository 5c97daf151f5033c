"""docs/concepts/gateway.md: a request is placed, waits or is refused by itself, and one bad request costs no other."""

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from gateway.tests.ext_proc_caller import BODY, CHAT_PATH, Caller
from gateway.tests.one_endpoint import ADDRESSES, BROKEN, CHAT, REPLICAS, Holding, parts_of, turn
from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS
from llmendpoint_gateway.core.endpoint.endpoint_settings import QueueSettings
from llmendpoint_gateway.core.endpoint.objects import Slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy.resources import DESTINATION_HEADER, TAG_HEADER
from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.core.request.request import read_tag
from llmendpoint_gateway.serve.parts import Parts, make_parts
from llmendpoint_gateway.serve.placement.control import Control
from llmendpoint_gateway.serve.request import models
from llmendpoint_gateway.serve.request.ext_proc import Picker

STREAM = b'{"model": "chat", "stream": true}'
PER_TRY, TOTAL = "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-upstream-rq-timeout-ms"
TIMER = SimpleNamespace(cancel=lambda: None)


async def one_endpoint(parts: Parts) -> Parts:
    """One endpoint, of which a replica is to come and none is ready."""
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": replace(CHAT, expects=True)})
    parts.control.relisted(Kind.SLICE, {"a/s": Slice("a/chat", "r1", ())})
    await turn()
    return parts


@pytest.fixture
async def parts() -> Parts:
    return await one_endpoint(parts_of(Holding(), hold_seconds=50))


@pytest.fixture
async def control(parts: Parts) -> Control:
    return parts.control


@pytest.fixture
async def picker(parts: Parts) -> Picker:
    return parts.picker


async def with_timers() -> tuple[Parts, list[tuple[float, Any]]]:
    """The parts, and the timers that they set: seconds, and what is called then."""
    timers: list[tuple[float, Any]] = []

    def later(seconds: float, call: Any) -> Any:
        timers.append((seconds, call))
        return TIMER

    return await one_endpoint(make_parts(Holding(), lambda: 0.0, later, hold_seconds=50)), timers


def crash_twice(control: Control) -> None:
    for address, again in zip(ADDRESSES, (False, True), strict=True):
        control.placement.poison.crashed("a/chat", scan(BODY).print_, address, 0, again=again)


async def test_it_does_not_wait_where_no_replica_is_ready(control: Control, picker: Picker) -> None:
    crash_twice(control)
    caller = Caller()
    caller.asks(picker)
    assert caller.code == "request_refused"
    assert control.held.waiting.count("a/chat") == 0


async def test_a_copy_of_it_that_waits_is_refused_when_a_replica_comes(
    control: Control, picker: Picker
) -> None:
    caller = Caller()
    caller.asks(picker)
    assert control.held.waiting.count("a/chat") == 1
    crash_twice(control)
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code == "request_refused"
    assert control.held.waiting.count("a/chat") == control.placement.in_flight.total() == 0


async def test_others_that_wait_are_placed(control: Control, picker: Picker) -> None:
    caller = Caller()
    caller.asks(picker)
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code is None
    assert control.placement.in_flight.total() == 1


@pytest.mark.parametrize(
    ("body", "path", "deadlines"),
    [
        (STREAM, CHAT_PATH, {PER_TRY: "1500"}),
        (STREAM, f"/a/chat{CHAT_PATH}", {PER_TRY: "1500"}),
        (BODY, CHAT_PATH, {TOTAL: "3600000"}),
        (b"no JSON", f"/a/chat{CHAT_PATH}", {TOTAL: "3600000"}),
    ],
)
async def test_the_time_to_the_first_byte_has_a_bound_in_streams_alone_and_all_else_a_total_one(
    control: Control, picker: Picker, body: bytes, path: str, deadlines: dict[str, str]
) -> None:
    """An answer that is no stream begins when it is complete: long ones ran twice, got 504, and ejected replicas."""
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, first_byte=1.5))
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    caller = Caller()
    caller.asks(picker, body, path=path)
    assert {k: v for k, v in caller.headers.items() if k in (PER_TRY, TOTAL)} == deadlines
    assert caller.headers.get(":path") == (CHAT_PATH if path != CHAT_PATH else None)


async def test_a_request_that_envoy_tries_again_is_counted_where_it_went_and_ends_there(
    parts: Parts, control: Control, picker: Picker
) -> None:
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    caller, placement = Caller(), control.placement
    caller.asks(picker)
    tag = read_tag(caller.headers[TAG_HEADER])
    first, second = caller.headers[DESTINATION_HEADER].split(",")
    assert placement.in_flight.counts == {"a/chat/r1": {first: 1}}
    attempt = replace(BROKEN, address=first, tag=tag, retried=True)
    parts.outcomes.settle(attempt)
    assert placement.in_flight.counts == {"a/chat/r1": {second: 1}}
    parts.outcomes.settle(attempt)  # once only
    assert placement.in_flight.counts == {"a/chat/r1": {second: 1}}
    picker.ended(caller)  # type: ignore[arg-type]
    assert placement.in_flight.total() == 0
    parts.outcomes.settle(attempt)  # it comes late
    assert placement.in_flight.total() == 0


async def test_the_list_of_models_is_made_once_for_each_change_of_its_names(
    control: Control, picker: Picker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(models, "model_list", lambda view: made.append(view) or {"data": sorted(view.names)})

    def listed() -> list[str]:
        caller = Caller()
        caller.asks(picker, None, method="GET", path="/v1/models")
        names: list[str] = orjson.loads(caller.replies[-1].immediate_response.body)["data"]
        return names

    assert listed() == listed() == ["a/chat", "chat"]
    control.applied(Kind.SLICE, "a/s", REPLICAS)  # a replica is not listed
    await turn()
    listed()
    assert len(made) == 1
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, served_names=("gpt",)))
    await turn()
    assert listed() == ["a/chat", "gpt"]
    assert len(made) == 2


async def test_an_exception_in_one_decision_is_that_requests_alone(
    control: Control, picker: Picker, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    well, bad, after = Caller(), Caller(), Caller()
    well.asks(picker)
    with monkeypatch.context() as patch:
        patch.setattr(control.placement, "place", lambda *_: 1 / 0)
        bad.asks(picker)
    after.asks(picker)
    assert (well.code, bad.code, after.code) == (None, "gateway_error", None)
    bad.state = object()
    picker.ended(bad)  # type: ignore[arg-type]
    assert control.placement.in_flight.total() == 2


@pytest.mark.parametrize("message", [b"", b"\xff" * 20, b"\x12\x05abc", b"\x22\x7f"])
async def test_a_message_that_cannot_be_read_costs_its_request_alone(picker: Picker, message: bytes) -> None:
    caller = Caller()
    picker.message(caller, message)  # type: ignore[arg-type]
    assert caller.code in ("gateway_error", "unknown_url")


async def test_a_request_that_waits_is_kept_in_a_few_hundred_bytes_whatever_its_headers(
    control: Control, picker: Picker
) -> None:
    caller = Caller()
    caller.asks(
        picker, path=f"{CHAT_PATH}?{'x' * 2000}", x_request_id="y" * 60_000, content_type="z" * 60_000
    )
    kept = pickle.dumps(caller.state.request)
    assert len(kept) < 1500


@pytest.mark.parametrize("tokens", [1, 1000])
async def test_a_caller_with_any_number_of_tokens_is_one_caller_and_another_gets_in(
    control: Control, picker: Picker, tokens: int
) -> None:
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, expects=True, queue=QueueSettings(most=20)))
    await turn()
    greedy = [Caller() for _ in range(1000)]
    for number, caller in enumerate(greedy):
        forged = f"10.0.{number}.{number % 250}, 10.0.0.1"  # Envoy writes the last one
        caller.asks(picker, authorization=f"Bearer {number % tokens}", x_forwarded_for=forged)
    honest = [Caller() for _ in range(5)]
    for caller in honest:
        caller.asks(picker, x_forwarded_for="10.0.0.2")
    assert [caller.code for caller in honest] == [None] * 5
    assert sum(caller.code is None for caller in greedy) == 15


async def test_an_endpoint_that_is_deleted_and_applied_again_loses_no_request(
    control: Control, picker: Picker
) -> None:
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    callers = [Caller() for _ in range(3)]
    for caller, path in zip(callers, (CHAT_PATH, f"/a/chat{CHAT_PATH}", CHAT_PATH), strict=True):
        caller.asks(picker, path=path)
    assert [caller.code for caller in callers] == [None] * 3
    assert control.held.waiting.count("a/chat") == 3
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, expects=True))
    await turn()
    assert control.placement.in_flight.total() == 3


async def test_a_deleted_endpoint_is_waited_for_also_when_another_claims_its_key_as_a_name(
    control: Control, picker: Picker
) -> None:
    claims = replace(CHAT, name="other", served_names=("a/chat",), created="2026-02-01T00:00:00Z")
    control.applied(Kind.ENDPOINT, "a/other", claims)
    control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    caller = Caller()
    caller.asks(picker)
    assert caller.code is None
    assert control.held.waiting.count("a/chat") == 1


async def test_of_a_deleted_endpoint_nothing_is_kept_when_its_name_goes_to_another(
    control: Control, picker: Picker
) -> None:
    caller = Caller()
    caller.asks(picker)
    control.deleted(Kind.ENDPOINT, "a/chat")
    control.applied(Kind.ENDPOINT, "b/chat", replace(CHAT, namespace="b"))
    await turn()
    assert caller.code == "no_ready_replica"
    assert control.held.waiting.seconds("a/chat") is None


async def test_an_endpoint_that_stays_deleted_is_told_to_be_unknown_after_a_moment() -> None:
    parts, timers = await with_timers()
    control, picker = parts.control, parts.picker
    control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    caller = Caller()
    caller.asks(picker)
    assert caller.code is None
    timers[-1][1]()
    assert caller.code == "model_not_found"
    assert control.held.waiting.requests == 0


async def test_an_endpoint_that_is_back_without_a_replica_is_waited_for_as_long_as_any() -> None:
    parts, timers = await with_timers()
    control, picker = parts.control, parts.picker
    control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    caller = Caller()
    caller.asks(picker)
    asked = caller.replies[-1].override_message_timeout.seconds
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, expects=True))
    await turn()
    timers[-1][1]()
    assert caller.code is None
    assert sum(seconds for seconds, _ in timers) < asked  # Envoy was told at once how long it may take
    timers[-1][1]()
    assert caller.code == "no_ready_replica"


async def test_who_waits_for_an_endpoint_that_is_deleted_is_told_so_unless_it_is_back_in_a_moment() -> None:
    parts, timers = await with_timers()
    control, picker = parts.control, parts.picker
    callers = [Caller() for _ in range(2)]
    for caller in callers:
        caller.asks(picker)
    control.deleted(Kind.ENDPOINT, "a/chat")
    await turn()
    assert [caller.code for caller in callers] == [None, None]
    assert [seconds for seconds, _ in timers[2:]] == [GRACE_SECONDS] * 2
    for _, expire in timers[2:]:
        expire()
    assert [caller.code for caller in callers] == ["model_not_found"] * 2


async def test_a_declared_path_passes_to_the_endpoints_whose_runtime_declares_it_and_to_no_other(
    control: Control, picker: Picker
) -> None:
    def asked(path: str, body: bytes = BODY) -> Caller:
        caller = Caller()
        caller.asks(picker, body, path=path)
        return caller

    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert asked("/pooling").code == asked("/a/chat/pooling").code == "unknown_url"
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, paths=frozenset({"/pooling"})))
    control.applied(Kind.ENDPOINT, "a/other", replace(CHAT, name="other", served_names=("other",)))
    await turn()
    assert asked("/pooling").headers[DESTINATION_HEADER]
    assert asked("/a/chat/pooling?x=1", b"no JSON").headers[":path"] == "/pooling?x=1"
    assert asked("/pooling", b'{"model": "other"}').code == asked("/a/other/pooling").code == "unknown_url"
    assert asked("/pooling", b'{"model": "nobody"}').code == "model_not_found"
