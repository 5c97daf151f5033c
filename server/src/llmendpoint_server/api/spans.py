"""The spans of one request: the request, and in it the queue, the prefill and the decode. They hold sizes and times, no text."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from llmendpoint_server.api.record import Record
from llmendpoint_server.api.traces import Ended
from llmendpoint_server.core.trace_context import Parent

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""`gen_ai.operation.name`, by path."""
SCOPE = InstrumentationScope("llmendpoint_server")
Value = str | int | float | list[str]


class Spans:
    """Makes the spans of one server's requests."""

    def __init__(self, model: str, resource: Resource) -> None:
        self._model, self._resource = model, resource

    def of(
        self, request: Ended, trace_id: int, parent: Parent | None, wall_offset_ns: int
    ) -> list[ReadableSpan]:
        """`wall_offset_ns`: Unix time less the monotonic clock's."""

        def unix_ns(seconds: float) -> int:
            return int(seconds * 1e9) + wall_offset_ns

        root = _context(trace_id)
        failed = request.status >= 500 or request.record.finish == "error"
        operation = OPERATIONS.get(request.path)
        spans = [
            ReadableSpan(
                name=request.method if operation is None else f"{operation} {self._model}",
                context=root,
                parent=None if parent is None else _remote(parent),
                resource=self._resource,
                attributes=dict(self._attributes(request, operation)),
                kind=SpanKind.SERVER,
                status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                start_time=unix_ns(request.began),
                end_time=unix_ns(request.ended),
                instrumentation_scope=SCOPE,
            )
        ]
        if (times := request.record.times) is not None:
            points = (times.arrived, times.began, times.first_token, times.last_token)
            spans += [
                ReadableSpan(
                    name=name, context=_context(trace_id), parent=root, resource=self._resource,
                    start_time=unix_ns(start), end_time=unix_ns(end), instrumentation_scope=SCOPE,
                )
                for name, start, end in zip(("queue", "prefill", "decode"), points, points[1:], strict=False)
            ]  # fmt: skip
        return spans

    def _attributes(self, request: Ended, operation: str | None) -> Iterable[tuple[str, Value]]:
        """OpenTelemetry's names for generative AI, and vLLM's for times."""
        yield "http.request.method", request.method
        yield "http.response.status_code", request.status
        yield "url.path", request.path
        yield "llmendpoint.http_id", request.http_id
        if request.status >= 400:
            yield "error.type", str(request.status)
        if operation is not None:
            yield "gen_ai.operation.name", operation
            yield "gen_ai.provider.name", "llmendpoint"
            yield "gen_ai.request.model", self._model
        if request.record.request_id:
            yield from _usage(request.record)
        if (times := request.record.times) is not None:
            yield "gen_ai.latency.time_in_queue", times.queue
            yield "gen_ai.latency.time_in_model_prefill", times.prefill
            yield "gen_ai.latency.time_in_model_decode", times.decode
            yield "gen_ai.latency.e2e", times.last_token - times.arrived


def _usage(record: Record) -> Iterable[tuple[str, Value]]:
    yield "gen_ai.response.id", record.request_id
    yield "gen_ai.response.finish_reasons", [record.finish]
    yield "gen_ai.usage.input_tokens", record.prompt_tokens
    yield "gen_ai.usage.output_tokens", record.output_tokens
    yield "gen_ai.usage.cache_read.input_tokens", record.cached_tokens
    yield "gen_ai.request.max_tokens", record.max_tokens
    yield "gen_ai.request.choice.count", record.answers
    if record.first_token_s is not None:
        yield "gen_ai.latency.time_to_first_token", record.first_token_s


def _context(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, secrets.randbits(64) or 1, False, TraceFlags(TraceFlags.SAMPLED))


def _remote(parent: Parent) -> SpanContext:
    return SpanContext(parent.trace_id, parent.span_id, True, TraceFlags(TraceFlags.SAMPLED))
