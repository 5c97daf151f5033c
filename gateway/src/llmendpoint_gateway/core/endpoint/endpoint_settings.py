"""An endpoint's settings for its requests: the queue and the breaker. The defaults equal the CRD's."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from llmendpoint_gateway.core.endpoint.loads import Load


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`spec.traffic.queue`. `seconds` is the longest wait; None means the gateway's own setting."""

    most: int = 1000
    seconds: float | None = None
    per_replica: int = 4
    kv_usage: float = 0.95

    def limit(self, load: Load, in_flight: int) -> int:
        """How many requests of this gateway pod a replica with this load may have in flight. It has `in_flight` of them
        now.

        Its other requests come from other gateway pods. This pod may always use half of the replica's room, so that no
        pod takes all of it. One request is always allowed: without one, no request of this pod would end there and make
        room.
        """
        room = load.max_num_seqs + self.per_replica
        outstanding = load.running + load.waiting
        limit = max(room - max(0, outstanding - in_flight), ceil(room / 2))
        if outstanding and load.kv_usage >= self.kv_usage:
            limit = min(limit, in_flight)
        return max(limit, 1)


@dataclass(frozen=True, slots=True)
class CircuitSettings:
    """`spec.circuitBreaker`. Times in seconds; `error_rate` 0..1."""

    error_rate: float = 0.5
    window: float = 30.0
    min_requests: int = 20
    open_seconds: float = 10.0


DEFAULT_QUEUE = QueueSettings()
DEFAULT_CIRCUIT = CircuitSettings()


def parse_queue(spec: Mapping[str, Any]) -> QueueSettings:
    """`spec` is an LLMEndpoint's spec with the API server's defaults. A field of a wrong type counts as absent."""
    queue, default = part(part(spec, "traffic"), "queue"), DEFAULT_QUEUE
    return QueueSettings(
        int(_number(queue, "maxRequests", default.most)),
        _number(queue, "timeoutSeconds", None),
        int(_number(queue, "waitingPerReplica", default.per_replica)),
        _number(queue, "maxKvUsage", default.kv_usage),
    )


def parse_circuit(spec: Mapping[str, Any]) -> CircuitSettings:
    """Like `parse_queue`, for `spec.circuitBreaker`."""
    breaker, default = part(spec, "circuitBreaker"), DEFAULT_CIRCUIT
    return CircuitSettings(
        _number(breaker, "errorRate", default.error_rate),
        _number(breaker, "windowSeconds", default.window),
        int(_number(breaker, "minRequests", default.min_requests)),
        _number(breaker, "openSeconds", default.open_seconds),
    )


def parse_first_byte(spec: Mapping[str, Any]) -> float | None:
    """The seconds within which an answer must begin; None means no limit."""
    seconds: float | None = _number(part(spec, "traffic"), "firstByteTimeoutSeconds", None)
    return seconds


def part(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """The object in this field; empty if the field is absent or of another type."""
    value = body.get(field)
    return value if isinstance(value, Mapping) else {}


def _number(body: Mapping[str, Any], field: str, default: Any) -> Any:
    value = body.get(field)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
