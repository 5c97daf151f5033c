"""Exports spans by OTLP over HTTP, in a thread of its own. A collector that is slow or away costs a request nothing: what does
not fit into the queue is dropped and counted."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from llmendpoint_gateway.serve.metrics import Metrics
from llmendpoint_gateway.serve.traces.spans import spans_of
from llmendpoint_gateway.serve.traces.traces import Traced, Tracer

MOST_WAITING = 4096
"""Requests, each of which has at most three spans."""
MOST_TOGETHER = 64
"""Requests in one call to the collector. While a call is written, decisions wait for Python's lock: a few milliseconds."""
GATHER_SECONDS = 1.0
CLOSE_SECONDS = 2.0
EXPORT_SECONDS = 10.0
log = structlog.get_logger()


def make_tracer(endpoint: str, ratio: float, clock: Callable[[], float], metrics: Metrics) -> Tracer:
    """Headers, certificates and compression are what OpenTelemetry's variables say (OTEL_EXPORTER_OTLP_HEADERS and others)."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failure, twice
    exports = Exports(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS), metrics)
    return Tracer(ratio, clock, exports.add, exports.close)


class Exports:
    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter, self._metrics = exporter, metrics
        self._resource = Resource({"service.name": "llmendpoint-gateway"}).merge(
            OTELResourceDetector().detect()
        )
        self._waiting: deque[Traced] = deque()
        self._some, self._closing = threading.Event(), threading.Event()
        self._well = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="otlp")
        self._thread.start()

    def add(self, traced: Traced) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._metrics.traced(1, exported=False)
            return
        self._waiting.append(traced)
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

    def _export(self, requests: Sequence[Traced]) -> None:
        offset = time.time_ns() - time.monotonic_ns()
        try:
            spans = [span for traced in requests for span in spans_of(traced, self._resource, offset)]
            well = self._exporter.export(spans) is SpanExportResult.SUCCESS
            why = "the collector does not take them"
        except Exception as error:  # any: these spans are lost, and the thread goes on
            well, why = False, type(error).__name__
        self._metrics.traced(len(requests), exported=well)
        if well != self._well:
            self._well = well
            if well:
                log.info("traces are exported again")
            else:
                log.warning("traces are lost", why=why)
