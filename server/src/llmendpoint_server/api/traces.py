"""Spans of requests, made from their times after their end. Off by default: then nothing of OpenTelemetry is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.record import Record
from llmendpoint_server.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class Ended:
    """A request whose answer has ended. `traceparent`: the caller's header. `began`, `ended`: seconds of the monotonic clock."""

    traceparent: str
    http_id: str
    method: str
    path: str
    status: int
    began: float
    ended: float
    record: Record


class Traces(Protocol):
    """All methods are for the event loop's thread, and none waits."""

    def end(self, request: Ended) -> None: ...

    def close(self) -> None:
        """Export what waits, for a short time; nothing may come afterwards."""


class Untraced:
    def end(self, request: Ended) -> None:
        pass

    def close(self) -> None:
        pass


def make_traces(
    endpoint: str | None, ratio: float, model: str, version: str, instance: str, metrics: Metrics
) -> Traces:
    """Raises BadConfiguration if OpenTelemetry is not installed."""
    if endpoint is None:
        return Untraced()
    try:
        from llmendpoint_server.api.otlp import OtlpTraces, make_exporter
    except ImportError as error:
        raise BadConfiguration(
            f"--otlp-traces-endpoint needs the package opentelemetry-exporter-otlp-proto-http: {error}"
        ) from error
    return OtlpTraces(make_exporter(endpoint), ratio, model, version, instance, metrics)
