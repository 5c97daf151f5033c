"""A request that two replicas went down with is neither placed nor held for a third."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from gateway.tests.test_control import ADDRESSES, CHAT, REPLICAS, Holding, turn
from llmendpoint_gateway.body import scan
from llmendpoint_gateway.control import Control
from llmendpoint_gateway.core.objects import Slice
from llmendpoint_gateway.core.view import Kind
from llmendpoint_gateway.ext_proc import Picker
from llmendpoint_gateway.metrics import Metrics
from llmendpoint_gateway.placement import Placement

BODY = b'{"model": "chat"}'


class Caller:
    """A stream of ext_proc, and what the picker said on it."""

    def __init__(self) -> None:
        self.state: Any = None
        self.replies: list[pb.ProcessingResponse] = []

    def send(self, message: bytes) -> None:
        self.replies.append(pb.ProcessingResponse.FromString(message))

    def asks(self, picker: Picker) -> None:
        pairs = {":method": "POST", ":path": "/v1/chat/completions"}
        headers = HeaderMap(headers=[HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs.items()])
        head = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=headers))
        body = pb.ProcessingRequest(request_body=pb.HttpBody(body=BODY, end_of_stream=True))
        for message in (head, body):
            picker.message(self, message.SerializeToString())  # type: ignore[arg-type]

    @property
    def code(self) -> str | None:
        """Of the error that it was answered with."""
        answer = self.replies[-1].immediate_response
        return orjson.loads(answer.body)["error"]["code"] if answer.body else None


@pytest.fixture
async def control() -> Control:
    """One endpoint, of which a replica is to come and none is ready."""
    control = Control(Holding(), Placement(lambda: 0, hold_seconds=50))
    control.relisted(Kind.ENDPOINT, {"a/chat": replace(CHAT, expects=True)})
    control.relisted(Kind.SLICE, {"a/s": Slice("a/chat", "r1", ())})
    await turn()
    return control


@pytest.fixture
async def picker(control: Control) -> Picker:
    return Picker(control.placement, Metrics(), asyncio.get_running_loop().call_later)


def crash_twice(control: Control) -> None:
    for address, again in zip(ADDRESSES, (False, True), strict=True):
        control.placement.poison.crashed("a/chat", scan(BODY).print_, address, 0, again=again)


async def test_it_does_not_wait_where_no_replica_is_ready(control: Control, picker: Picker) -> None:
    crash_twice(control)
    caller = Caller()
    caller.asks(picker)
    assert caller.code == "request_refused"
    assert control.placement.waiting.count("a/chat") == 0


async def test_a_copy_of_it_that_waits_is_refused_when_a_replica_comes(
    control: Control, picker: Picker
) -> None:
    caller = Caller()
    caller.asks(picker)
    assert control.placement.waiting.count("a/chat") == 1
    crash_twice(control)
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code == "request_refused"
    assert control.placement.waiting.count("a/chat") == control.placement.in_flight.total() == 0


async def test_others_that_wait_are_placed(control: Control, picker: Picker) -> None:
    caller = Caller()
    caller.asks(picker)
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert caller.code is None
    assert control.placement.in_flight.total() == 1
