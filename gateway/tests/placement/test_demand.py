"""docs/contribute/contracts.md: `/demand` sends every endpoint once, then changes; the first request that waits is sent at once."""

import asyncio
import threading
from dataclasses import replace

import httpx
import orjson

from gateway.tests.asking import ask, expect_a_replica
from gateway.tests.bounds import wait_for
from gateway.tests.demand_lines import stream
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.one_endpoint import CHAT, parts_of, turn
from llmendpoint_gateway.core.endpoint.loads import Load
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.placement.demand import Circuit, EndpointDemand, Reader, ReplicaDemand, as_json
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.placement.demand_stream import AT_ONCE

LOAD = Load(3, 1, 0.5, 8, 90)
CLOSED = Circuit("closed", "2026-01-01T00:00:00.000Z")


def demand(waiting: int = 0, read_at: float = 0.0) -> EndpointDemand:
    return EndpointDemand(waiting, 3, CLOSED, (ReplicaDemand("pod", 3, LOAD, read_at),))


def test_a_reader_is_told_of_what_differs_once_and_of_an_end_as_null() -> None:
    reader = Reader()
    assert reader.news({"a": demand(), "b": demand()}) == {"a": demand(), "b": demand()}
    reader.touch(["a", "b"])
    assert reader.news({"a": demand(1), "b": demand()}) == {"a": demand(1)}
    assert reader.pending == frozenset()
    assert reader.news({"b": None}) == {"b": None}
    assert reader.news({"b": None, "c": None}) == {}


def test_a_newer_reading_of_the_same_load_is_no_news() -> None:
    reader = Reader()
    reader.news({"a": demand(read_at=1)})
    assert reader.news({"a": demand(read_at=2)}) == {}


def test_only_the_first_who_waits_is_told_at_once() -> None:
    reader = Reader()
    assert reader.begins_to_wait("a")
    reader.news({"a": demand()})
    assert reader.begins_to_wait("a")
    reader.news({"a": demand(1)})
    assert not reader.begins_to_wait("a")


def test_the_shape_of_an_endpoint() -> None:
    unread = EndpointDemand(0, 0, CLOSED, (ReplicaDemand("cold", 0, None),))
    assert as_json({"a": demand(2, read_at=1.0), "b": unread, "c": None}, 1.25) == {
        "a": {
            "waiting": 2,
            "in_flight": 3,
            "breaker": {
                "state": "closed",
                "since": "2026-01-01T00:00:00.000Z",
                "requests": 0,
                "errors": 0,
            },
            "replicas": {
                "pod": {
                    "in_flight": 3,
                    "load": {
                        "running": 3,
                        "waiting": 1,
                        "kv_usage": 0.5,
                        "max_num_seqs": 8,
                        "outstanding_tokens": 90,
                        "age": 0.25,
                    },
                }
            },
        },
        "b": {
            "waiting": 0,
            "in_flight": 0,
            "breaker": as_json({"a": demand()}, 0)["a"]["breaker"],
            "replicas": {"cold": {"in_flight": 0, "load": None}},
        },
        "c": None,
    }


def test_the_first_line_has_everything_and_the_next_what_changes(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=4")
    name = gateway.endpoint(backend)
    pod = f"a-{backend.port}"
    with stream(gateway) as lines:
        assert lines.first["instance"]
        assert f"team/{name}" in lines.first["endpoints"]
        idle = lines.until(name, lambda e: e["replicas"][pod]["load"] is not None, "its load was read")
        assert (idle["waiting"], idle["in_flight"], idle["breaker"]["state"]) == (0, 0, "closed")
        headers = {"x-tokens": "10000", "x-interval": "0.05"}
        body = {"model": f"team/{name}"}
        with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=headers):
            busy = lines.until(name, lambda e: e["replicas"][pod]["load"]["running"] == 1, "it is busy")
            assert busy["replicas"][pod]["in_flight"] == busy["in_flight"] == 1
            assert busy["replicas"][pod]["load"]["max_num_seqs"] == 4
        lines.until(name, lambda e: e["in_flight"] == 0, "it is idle again")
        backend.kill()
        gateway.remove_replica(name, "r1", backend)
        lines.until(name, lambda e: e["replicas"] == {}, "the pod is gone")
        gateway.api.delete("llmendpoints", name)
        wait_for(lambda: f"team/{name}" not in lines.endpoints, "the endpoint is gone")


def test_a_replica_that_no_longer_tells_its_load_is_unknown_and_not_idle(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=4")
    name, pod = gateway.endpoint(backend), f"a-{backend.port}"
    ask(gateway, name)  # a busy one is read often, and its readings age soon
    with stream(gateway) as lines:
        lines.until(name, lambda e: e["replicas"][pod]["load"] is not None, "it is known")
        backend.kill()
        found = lines.until(name, lambda e: e["replicas"][pod]["load"] is None, "it is unknown")
        assert pod in found["replicas"]


def test_who_waits_is_told_before_the_next_period_and_silence_is_never_long(gateway: Gateway) -> None:
    expect_a_replica(gateway, "wanted")
    with stream(gateway) as lines:
        threading.Thread(target=ask, args=(gateway, "wanted"), daemon=True).start()
        lines.until("wanted", lambda e: e["waiting"] == 1, "one waits")
        count = len(lines.arrivals)
        wait_for(lambda: len(lines.arrivals) >= count + 3, "lines come though nothing happens")


def test_a_stop_of_the_gateway_ends_the_stream_and_another_start_is_another_instance() -> None:
    with running_gateway() as gateway:
        gateway.ready()
        with stream(gateway) as lines:
            gateway.picker.terminate()
            assert gateway.picker.wait(15) == 0
            assert lines.ended.wait(5)
        gateway.start_picker()
        gateway.ready()
        with stream(gateway) as again:
            assert again.first["instance"] != lines.first["instance"]


async def test_a_line_about_many_endpoints_lets_others_of_the_loop_have_their_turns() -> None:
    parts = parts_of(Ads())
    many = {f"a/c{n}": replace(CHAT, name=f"c{n}", served_names=(f"c{n}",)) for n in range(10 * AT_ONCE)}
    parts.control.relisted(Kind.ENDPOINT, many)
    parts.control.relisted(Kind.SLICE, {})
    await turn()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await turn()
            turns += 1

    deciding = asyncio.create_task(others())
    line = await anext(parts.demand._lines(Reader(), asyncio.Event()))
    deciding.cancel()
    assert set(orjson.loads(line)["endpoints"]) == set(many)
    assert turns >= 8
