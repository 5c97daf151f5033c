"""docs/operate/traces.md: the server sends spans of its requests to a collector, with the queue, the prefill and the decode."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import Counter

from llmendpoint_server.api import otlp
from llmendpoint_server.api.record import Record
from llmendpoint_server.api.traces import Ended
from server.tests.api.over_http import ASK
from server.tests.server_process import ServerProcess
from tests.collector import Collector, Span

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "a word that nobody else may read"
PHASES = ("queue", "prefill", "decode")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[ServerProcess]:
    """The whole server with the demo model. Without a caller's decision nothing is traced."""
    flags = ("--otlp-traces-endpoint", collector.endpoint, "--trace-sampling", "0")
    with ServerProcess("--served-model-name", "chat", "--device", "cpu", *flags) as server:
        yield server.wait_ready()


def send(server: ServerProcess, trace: str = TRACE, sampled: bool = True, **fields: object) -> httpx.Response:
    headers = {
        "traceparent": f"00-{trace}-{CALLER}-0{int(sampled)}",
        "x-request-id": trace[:8],
        "authorization": SECRET,
    }
    return httpx.post(
        server.url + "/v1/chat/completions",
        json=ASK | {"ignore_eos": True} | fields,
        headers=headers,
        timeout=60,
    )


def of_trace(collector: Collector, trace: str, count: int) -> dict[str, Span]:
    return {span.name: span for span in collector.wait(lambda span: span.trace == trace, count)}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_span_of_its_callers_trace_with_its_phases_in_their_order(
    traced: ServerProcess, collector: Collector, stream: bool
) -> None:
    trace = f"{int(stream) + 1:032x}"
    before = time.time()
    answer = send(traced, trace, stream=stream)
    spans = of_trace(collector, trace, 4)
    root = spans["chat chat"]
    assert (root.parent, root.kind, root.failed) == (CALLER, "SPAN_KIND_SERVER", False)
    phases = [spans[name] for name in PHASES]
    assert {span.parent for span in phases} == {root.id}
    assert before - 0.01 < root.start <= phases[0].start
    assert phases[-1].end <= root.end + 0.001
    assert [span.end for span in phases[:2]] == pytest.approx([span.start for span in phases[1:]])
    assert all(span.end > span.start for span in phases)
    said = root.attributes
    assert said["gen_ai.request.model"] == "chat"
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.usage.output_tokens"] == said["gen_ai.request.max_tokens"] == ASK["max_tokens"]
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    assert said["http.response.status_code"] == answer.status_code == 200
    assert 0 < said["gen_ai.latency.time_in_queue"] < said["gen_ai.latency.time_to_first_token"]
    assert said["gen_ai.latency.time_to_first_token"] <= said["gen_ai.latency.e2e"]
    if not stream:
        assert said["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
        assert said["gen_ai.response.id"] == answer.json()["id"]


def test_the_caller_decides_what_is_traced_and_spans_hold_no_text(
    traced: ServerProcess, collector: Collector
) -> None:
    quiet, loud = "c" * 32, "d" * 32
    messages = [{"role": "user", "content": SECRET}]
    send(traced, quiet, sampled=False, messages=messages)
    httpx.post(traced.url + "/v1/chat/completions", json=ASK, timeout=60)  # no traceparent, and a share of 0
    answer = send(traced, loud, messages=messages)
    of_trace(collector, loud, 4)
    assert {span.trace for span in collector.spans} <= {loud, *(f"{n:032x}" for n in (1, 2))}
    sent = b"".join(collector.raw)
    assert SECRET.encode() not in sent
    assert answer.json()["choices"][0]["message"]["content"].encode() not in sent


def test_a_refused_request_has_a_span_without_phases(traced: ServerProcess, collector: Collector) -> None:
    trace = "e" * 32
    assert send(traced, trace, temperature=-1).status_code == 400
    [root] = collector.wait(lambda span: span.trace == trace)
    assert (root.attributes["http.response.status_code"], root.attributes["error.type"]) == (400, "400")
    assert not root.failed  # the caller's fault, not the server's


def test_a_collector_that_is_away_costs_no_request_anything_and_is_found_again() -> None:
    with Collector() as collector:
        collector.status = 400
        flags = ("--served-model-name", "chat", "--otlp-traces-endpoint", collector.endpoint)
        with ServerProcess(*flags, fake={}) as server:
            server.wait_ready()
            assert send(server).status_code == 200
            server.wait_for("the loss", lambda: counted(server, "dropped") == 1, 20)
            collector.status = 200
            assert send(server, "f" * 32).status_code == 200
            of_trace(collector, "f" * 32, 1)
            server.wait_for("the success", lambda: counted(server, "exported") == 1, 20)
            events = [line["event"] for line in server.log()]
            assert events.index("traces are lost") < events.index("traces are exported again")
            server.terminate()
            assert server.wait_exit() == 0


def test_the_last_spans_are_sent_before_the_server_leaves_and_a_dead_collector_does_not_hold_it() -> None:
    with Collector() as collector:
        flags = ("--served-model-name", "chat", "--otlp-traces-endpoint", collector.endpoint)
        with ServerProcess(*flags, fake={}) as server:
            server.wait_ready()
            send(server, "a" * 32)
            server.terminate()
            assert server.wait_exit() == 0
        assert "a" * 32 in {span.trace for span in collector.spans}
    with ServerProcess(*flags, fake={}) as server:  # nothing listens there any more
        server.wait_ready()
        send(server)
        started = time.monotonic()
        server.terminate()
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 10


def counted(server: ServerProcess, what: str) -> float:
    lines = httpx.get(server.url + "/metrics").text.splitlines()
    return float(
        next(line for line in lines if line.startswith(f"llmendpoint:traces_{what}_total{{")).split()[-1]
    )


def test_without_a_collector_nothing_of_opentelemetry_is_loaded(
    fake_server: ServerProcess, traced: ServerProcess
) -> None:
    def has_protobuf(server: ServerProcess) -> bool:
        """OpenTelemetry's exporter is what loads this library."""
        return "google/_upb" in Path(f"/proc/{server.process.pid}/maps").read_text()

    assert send(fake_server).status_code == 200
    assert not has_protobuf(fake_server)
    assert has_protobuf(traced)
    assert counted(fake_server, "exported") == counted(fake_server, "dropped") == 0


def test_spans_that_wait_for_a_slow_collector_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MOST_WAITING", 3)
    monkeypatch.setattr(otlp, "GATHER_SECONDS", 0.0)
    held, begun = threading.Event(), threading.Event()

    class Slow(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            begun.set()
            held.wait(30)
            return super().export(spans)

    counts: Any = SimpleNamespace(
        traces_exported=Counter("a", "a", registry=None), traces_dropped=Counter("b", "b", registry=None)
    )
    traces = otlp.OtlpTraces(Slow(), 1.0, "demo", "1", "i", counts)
    ended = Ended("", "x", "POST", "/v1/completions", 200, 0.0, 1.0, Record())
    traces.end(ended)
    assert begun.wait(10)
    for _ in range(10):
        traces.end(ended)
    held.set()
    traces.close()
    assert counts.traces_dropped._value.get() == 7
    assert counts.traces_exported._value.get() == 4
