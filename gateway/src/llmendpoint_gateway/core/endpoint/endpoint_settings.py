"""What an endpoint's spec says of its requests: how they wait, and when its breaker opens. The defaults are the CRD's."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from llmendpoint_gateway.core.endpoint.loads import Load


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`spec.traffic.queue`. `seconds` None: as long as the gateway's own setting says."""

    most: int = 1000
    seconds: float | None = None
    per_replica: int = 4
    kv_usage: float = 0.95

    def limit(self, load: Load, in_flight: int) -> int:
        """How many requests of this gateway a replica with this load may have in flight; it has `in_flight` of them now.

        What it has beyond those comes from other gateways. Half of its room is ours in any case, so that of several
        gateways none keeps all of it; and one request always is, as nothing else would ever end there and make room.
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
    """`spec`: an LLMEndpoint's, as the API server has filled it in; a field of another type is taken as absent."""
    queue, default = part(part(spec, "traffic"), "queue"), DEFAULT_QUEUE
    return QueueSettings(
        int(_number(queue, "maxRequests", default.most)),
        _number(queue, "timeoutSeconds", None),
        int(_number(queue, "waitingPerReplica", default.per_replica)),
        _number(queue, "maxKvUsage", default.kv_usage),
    )


def parse_circuit(spec: Mapping[str, Any]) -> CircuitSettings:
    """As `parse_queue`."""
    breaker, default = part(spec, "circuitBreaker"), DEFAULT_CIRCUIT
    return CircuitSettings(
        _number(breaker, "errorRate", default.error_rate),
        _number(breaker, "windowSeconds", default.window),
        int(_number(breaker, "minRequests", default.min_requests)),
        _number(breaker, "openSeconds", default.open_seconds),
    )


def parse_first_byte(spec: Mapping[str, Any]) -> float | None:
    """Seconds until which an answer is to have begun; None: no limit."""
    seconds: float | None = _number(part(spec, "traffic"), "firstByteTimeoutSeconds", None)
    return seconds


def part(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A field that is to hold an object."""
    value = body.get(field)
    return value if isinstance(value, Mapping) else {}


def _number(body: Mapping[str, Any], field: str, default: Any) -> Any:
    value = body.get(field)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
