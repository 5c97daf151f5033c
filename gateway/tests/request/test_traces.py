"""docs/operate/traces.md: the gateway sends spans of its requests to a collector, and the engine's spans are part of them."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from opentelemetry.sdk.resources import Resource

from gateway.tests.asking import CHAT, post, until
from gateway.tests.engine_process import Backend
from gateway.tests.ext_proc_caller import Caller
from gateway.tests.harness import Gateway, running_gateway
from llmendpoint_gateway.core.envoy.wire import Stream
from llmendpoint_gateway.core.request.paths import ByModel
from llmendpoint_gateway.core.request.request import Head
from llmendpoint_gateway.core.request.trace_context import read_traceparent
from llmendpoint_gateway.serve.traces.spans import spans_of as spans_of_request
from llmendpoint_gateway.serve.traces.traces import Traced, Tracer
from server.tests.server_process import ServerProcess
from tests.collector import Collector, Span
from tests.ports import free_port

CALLER = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[Gateway]:
    """Without a caller's decision nothing is traced."""
    flags = ("--otlp-traces-endpoint", collector.endpoint, "--trace-sampling", "0")
    with running_gateway(picker_flags=flags) as running:
        yield running


def from_caller(trace: str, sampled: bool = True) -> str:
    return f"00-{trace}-{CALLER}-0{int(sampled)}"


def spans_of(collector: Collector, trace: str, count: int) -> dict[str, Span]:
    return {span.name: span for span in collector.wait(lambda span: span.trace == trace, count)}


def seen(backend: Backend) -> list[dict[str, Any]]:
    """The headers of the requests that the engine got."""
    with urllib.request.urlopen(f"http://{backend.address}/stub/seen") as answer:
        return [one["headers"] for one in json.load(answer)]


async def test_a_request_is_a_span_that_names_its_replica_and_the_replica_gets_it_as_parent(
    traced: Gateway, collector: Collector
) -> None:
    backend = traced.backend("a")
    name, trace = traced.endpoint(backend), "1" * 32
    answer = await post(
        traced, name, traceparent=from_caller(trace), tracestate="vendor=1", authorization="secret"
    )
    assert answer.status_code == 200
    spans = await asyncio.to_thread(spans_of, collector, trace, 2)
    root, pick = spans["gateway POST"], spans["pick"]
    assert (root.service, root.kind, root.parent, root.failed) == (
        "llmendpoint-gateway", "SPAN_KIND_SERVER", CALLER, False,
    )  # fmt: skip
    assert pick.parent == root.id
    assert root.start == pick.start < pick.end < root.end
    assert root.attributes == {
        "http.request.method": "POST", "url.path": CHAT, "llmendpoint.outcome": "picked",
        "llmendpoint.endpoint": f"team/{name}", "llmendpoint.revision": "r1", "server.address": backend.address,
    }  # fmt: skip
    [headers] = seen(backend)
    assert headers["traceparent"] == f"00-{trace}-{root.id}-01"
    assert headers["tracestate"] == "vendor=1"
    assert b"secret" not in b"".join(collector.raw)


async def test_a_trace_that_is_not_chosen_is_not_begun_anew_by_the_engine(
    traced: Gateway, collector: Collector
) -> None:
    backend = traced.backend("a")
    name = traced.endpoint(backend)
    quiet = from_caller("2" * 32, sampled=False)
    for headers in ({"traceparent": quiet}, {}, {"traceparent": "nonsense"}):
        assert (await post(traced, name, **headers)).status_code == 200
    theirs, own, mended = (headers["traceparent"] for headers in seen(backend))
    assert theirs == quiet
    for header in (own, mended):
        parent = read_traceparent(header)
        assert parent is not None
        assert not parent.sampled
    await post(traced, name, traceparent=from_caller("3" * 32))
    await asyncio.to_thread(spans_of, collector, "3" * 32, 2)
    assert {span.trace for span in collector.spans} <= {"1" * 32, "3" * 32}


async def test_a_request_that_waits_has_a_span_of_its_wait(traced: Gateway, collector: Collector) -> None:
    backend, trace = traced.backend("late"), "4" * 32
    traced.activate("waits", "r1", replicas=1)
    await until(lambda: "team/waits" in traced.state()["endpoints"], "the endpoint is known")
    waiting = asyncio.create_task(post(traced, "waits", traceparent=from_caller(trace)))
    await until(lambda: traced.metric("waiting_requests") == 1, "it waits")
    await asyncio.sleep(0.2)
    traced.replica("waits", "r1", backend)
    assert (await waiting).status_code == 200
    spans = await asyncio.to_thread(spans_of, collector, trace, 3)
    queue, root = spans["queue"], spans["gateway POST"]
    assert queue.parent == root.id
    assert queue.end - queue.start >= 0.2
    assert spans["pick"].end == queue.start


async def test_a_request_that_the_gateway_refuses_says_why(traced: Gateway, collector: Collector) -> None:
    for model, trace, status, code in (
        ("nobody", "5" * 32, 404, "model_not_found"),
        ("empty", "6" * 32, 503, None),
    ):
        if code is None:
            traced.activate(model, None)
            await until(lambda: "team/empty" in traced.state()["endpoints"], "the endpoint is known")
        answer = await post(traced, model, traceparent=from_caller(trace))
        assert answer.status_code == status
        root = (await asyncio.to_thread(spans_of, collector, trace, 2))["gateway POST"]
        assert root.attributes["http.response.status_code"] == status
        assert root.attributes["llmendpoint.outcome"] == answer.json()["error"]["code"]
        assert root.failed is (status >= 500)


async def test_gateway_and_engine_make_one_trace(traced: Gateway, collector: Collector) -> None:
    flags = ("--otlp-traces-endpoint", collector.endpoint, "--trace-sampling", "0")
    trace = "7" * 32
    with ServerProcess("--served-model-name", "one", *flags, module="llmendpoint_server.simulator") as engine:
        port = int(engine.wait_ready().url.rpartition(":")[2])
        replica = cast(Backend, SimpleNamespace(port=port, name="simulator", address=f"127.0.0.1:{port}"))
        name = traced.endpoint(replica, name="one")
        body = {"model": name, "messages": [{"role": "user", "content": "Hello"}]}
        async with httpx.AsyncClient(base_url=traced.url, timeout=30) as client:
            answer = await client.post(CHAT, json=body, headers={"traceparent": from_caller(trace)})
        assert answer.status_code == 200
        spans = await asyncio.to_thread(spans_of, collector, trace, 6)
    parents = {
        name: next((n for n, s in spans.items() if s.id == span.parent), "the caller")
        for name, span in spans.items()
    }
    assert parents == {
        "gateway POST": "the caller", "pick": "gateway POST", "chat one": "gateway POST",
        "queue": "chat one", "prefill": "chat one", "decode": "chat one",
    }  # fmt: skip
    whole, inner = spans["gateway POST"], spans["chat one"]
    assert whole.start <= inner.start <= inner.end <= whole.end + 0.05


async def test_a_collector_that_is_away_costs_no_request_anything() -> None:
    dead = f"http://127.0.0.1:{free_port()}/v1/traces"
    with running_gateway(picker_flags=("--otlp-traces-endpoint", dead)) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        answers = await asyncio.gather(*(post(gateway, name) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        await until(lambda: gateway.metric("traces_dropped_total") >= 20, "the spans are counted as lost")
        assert gateway.metric("traces_exported_total") == 0


async def test_without_a_collector_headers_stay_as_they_are_and_nothing_of_opentelemetry_is_loaded(
    gateway: Gateway, traced: Gateway
) -> None:
    backend = gateway.backend("a")
    name, theirs = gateway.endpoint(backend), from_caller("8" * 32)
    await post(gateway, name, traceparent=theirs)
    await post(gateway, name)
    first, second = seen(backend)
    assert first["traceparent"] == theirs
    assert "traceparent" not in second

    def has_exporter(running: Gateway) -> bool:
        """OpenTelemetry's exporter is what loads this library."""
        return "charset_normalizer" in Path(f"/proc/{running.picker.pid}/maps").read_text()

    assert not has_exporter(gateway)
    assert has_exporter(traced)


def test_a_request_whose_caller_leaves_before_its_body_is_exported_once_and_not_followed_any_more() -> None:
    exported: list[Traced] = []
    times = iter((1.0, 5.0))
    tracer = Tracer(1.0, lambda: next(times), exported.append)
    stream = cast(Stream, Caller())
    tracer.begin(stream, Head("POST", CHAT, ByModel(), 0))
    tracer.end(stream)
    tracer.end(stream)
    [only] = exported
    assert (only.began, only.ended, only.decided, only.outcome) == (1.0, 5.0, None, "")
    [whole, pick] = spans_of_request(only, Resource({}), 0)
    assert whole.attributes is not None
    assert whole.attributes["llmendpoint.outcome"] == "abandoned"
    assert (pick.start_time, pick.end_time) == (1_000_000_000, 5_000_000_000)
