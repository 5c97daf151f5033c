"""Exports spans by OTLP over HTTP, in a thread of its own. A collector that is slow or away costs a request nothing: what does
not fit into the queue is dropped and counted."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.spans import Spans
from llmendpoint_server.api.traces import Ended
from llmendpoint_server.core.trace_context import Parent, chosen, read_traceparent

MOST_WAITING = 2048
"""Requests, each of which has at most four spans."""
MOST_TOGETHER = 256
"""Requests in one call to the collector."""
GATHER_SECONDS = 1.0
CLOSE_SECONDS = 2.0
EXPORT_SECONDS = 10.0

Sampled = tuple[Ended, int, Parent | None, int]


def make_exporter(endpoint: str) -> SpanExporter:
    """Headers, certificates and compression are what OpenTelemetry's variables say (OTEL_EXPORTER_OTLP_HEADERS and others)."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failure, twice
    return OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)


class OtlpTraces:
    def __init__(
        self, exporter: SpanExporter, ratio: float, model: str, version: str, instance: str, metrics: Metrics
    ) -> None:
        ours = {
            "service.name": "llmendpoint-server",
            "service.version": version,
            "service.instance.id": instance,
        }
        resource = Resource(ours).merge(OTELResourceDetector().detect())
        self._exporter, self._ratio, self._metrics = exporter, ratio, metrics
        self._spans = Spans(model, resource)
        self._waiting: deque[Sampled] = deque()
        self._some, self._closing = threading.Event(), threading.Event()
        self._well = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="otlp")
        self._thread.start()

    def end(self, request: Ended) -> None:
        parent = read_traceparent(request.traceparent)
        trace_id = secrets.randbits(128) or 1 if parent is None else parent.trace_id
        if not (chosen(trace_id, self._ratio) if parent is None else parent.sampled):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._metrics.traces_dropped.inc()
            return
        self._waiting.append((request, trace_id, parent, time.time_ns() - time.monotonic_ns()))
        self._some.set()

    def close(self) -> None:
        self._closing.set()
        self._some.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()  # ends a pause before another attempt, too

    def _run(self) -> None:
        while not self._closing.is_set() or self._waiting:
            self._some.wait()
            self._closing.wait(GATHER_SECONDS)
            self._some.clear()
            while self._waiting:
                self._export([self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))])

    def _export(self, requests: Sequence[Sampled]) -> None:
        try:
            spans = [span for request in requests for span in self._spans.of(*request)]
            well = self._exporter.export(spans) is SpanExportResult.SUCCESS
            why = "the collector does not take them"
        except Exception as error:  # any: these spans are lost, and the thread goes on
            well, why = False, type(error).__name__
        counter = self._metrics.traces_exported if well else self._metrics.traces_dropped
        counter.inc(len(requests))
        if well != self._well:
            self._well = well
            log = structlog.get_logger()
            if well:
                log.info("traces are exported again")
            else:
                log.warning("traces are lost", why=why)
