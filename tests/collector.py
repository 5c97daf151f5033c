"""A collector of spans: OTLP over HTTP, as a test reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

WAIT_S = 30


@dataclass(frozen=True)
class Span:
    """Ids in hexadecimal, times in seconds. `parent`: empty without one. `service`: the resource's name."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    start: float
    end: float
    failed: bool
    attributes: dict[str, Any]


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


def _span(service: str, span: WireSpan) -> Span:
    return Span(
        service, span.name, WireSpan.SpanKind.Name(span.kind), span.trace_id.hex(), span.span_id.hex(),
        span.parent_span_id.hex(), span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9,
        span.status.code == 2, {one.key: _value(one.value) for one in span.attributes},
    )  # fmt: skip


class Collector:
    """Takes spans at `endpoint`. `status`: what it answers; other than 200 nothing is kept."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw: list[bytes] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector.status == 200:
                    collector.take(body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: _value(one.value) for one in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [_span(named["service.name"], span) for span in scope.spans]

    def wait(self, wanted: Callable[[Span], bool], count: int = 1) -> list[Span]:
        """At least so many spans, once they have come."""
        end = time.monotonic() + WAIT_S
        while len(found := [span for span in list(self.spans) if wanted(span)]) < count:
            assert time.monotonic() < end, f"{count} spans did not come; these did: {self.spans}"
            time.sleep(0.02)
        return found

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
