"""The spans of one request at the gateway: the request, and in it the wait for a replica and the choice of one."""

import secrets
from collections.abc import Iterable

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from llmendpoint_gateway.serve.traces.traces import Traced

SCOPE = InstrumentationScope("llmendpoint_gateway")


def spans_of(traced: Traced, resource: Resource, wall_offset_ns: int) -> list[ReadableSpan]:
    """`wall_offset_ns`: Unix time less the monotonic clock's."""
    root, parent = _context(traced.trace_id, traced.span_id), traced.parent
    decided = traced.ended if traced.decided is None else traced.decided
    begun = decided if traced.waits is None else traced.waits
    phases = [("pick", traced.began, begun)]
    if traced.waits is not None:
        phases.append(("queue", traced.waits, decided))

    def unix_ns(seconds: float) -> int:
        return int(seconds * 1e9) + wall_offset_ns

    whole = ReadableSpan(
        name=f"gateway {traced.head.method}",
        context=root,
        parent=None if parent is None else _context(parent.trace_id, parent.span_id, remote=True),
        resource=resource,
        attributes=dict(_attributes(traced)),
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR if traced.status >= 500 else StatusCode.UNSET),
        start_time=unix_ns(traced.began),
        end_time=unix_ns(traced.ended),
        instrumentation_scope=SCOPE,
    )
    return [
        whole,
        *(
            ReadableSpan(
                name=name, context=_context(traced.trace_id, secrets.randbits(64) or 1), parent=root, resource=resource,
                start_time=unix_ns(start), end_time=unix_ns(end), instrumentation_scope=SCOPE,
            )
            for name, start, end in phases
        ),
    ]  # fmt: skip


def _attributes(traced: Traced) -> Iterable[tuple[str, str | int]]:
    yield "http.request.method", traced.head.method
    yield "url.path", traced.head.path.partition("?")[0]
    yield "llmendpoint.outcome", traced.outcome or "abandoned"
    if traced.status:
        yield "http.response.status_code", traced.status
        yield "error.type", traced.outcome
    if traced.placed is not None:
        endpoint = traced.placed.picked.endpoint
        yield "llmendpoint.endpoint", endpoint
        yield "llmendpoint.revision", traced.placed.picked.cluster.removeprefix(f"{endpoint}/")
        yield "server.address", traced.address


def _context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED))
