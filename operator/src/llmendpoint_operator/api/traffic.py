"""How the gateway handles the requests of an endpoint: how they wait, and when all are refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel


class QueueSpec(ApiModel):
    """How requests wait in the gateway while every replica is busy or none is there yet."""

    max_requests: Annotated[int, Field(ge=0, le=5000)] = 1000
    """Largest number of waiting requests. When so many wait, a new request gets 429 with Retry-After, unless it can
    evict a waiting one: a request of a caller that has more waiting, or one of the same caller with lower priority.
    With 0 no request waits: replicas get every request at once, and without a replica the answer is 503."""
    timeout_seconds: Annotated[float, Field(ge=1, le=3000)] | None = None
    """Seconds for which a request waits before the gateway answers it with 503 and Retry-After. If not set, the
    chart value gateway.holdSeconds. Keep it below the timeouts of the callers and of a load balancer in front."""
    waiting_per_replica: Annotated[int, Field(ge=0, le=10_000)] = 4
    """Number of requests that a replica may hold in addition to those that it computes (`engine.maxNumSeqs`).
    Further requests wait in the gateway. A small number keeps the order fair and lets a new replica help at once.
    With 0, the batch of a replica is not full for a moment after each request."""
    max_kv_usage: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of a replica's KV cache, above 0 and up to 1, that running requests may use before the gateway sends it
    no more."""


class TrafficSpec(ApiModel):
    """How the gateway handles the requests of the endpoint."""

    first_byte_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Seconds in which a replica must begin to answer a request with `stream: true`. After that the gateway tries
    one other replica, and then answers 504. Two such timeouts in three requests in a row, from several callers,
    eject the replica. Requests without `stream: true` have one hour in all. If not set, there is no limit."""
    queue: QueueSpec = QueueSpec()
    """How requests wait in the gateway while every replica is busy or none is there yet. The limits apply to each
    gateway pod. All endpoints together may have 5,000 waiting requests and 128 MiB of request bodies in one gateway
    pod."""


class CircuitBreakerSpec(ApiModel):
    """When the gateway stops sending requests to the endpoint because they only fail."""

    error_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of failed requests in the window, above 0 and up to 1, at which the breaker opens. A request failed if
    its caller got a 5xx, or if its replica broke the connection or could not be reached and the retry failed too.
    429 does not count as failed. The share must also be reached without the requests of the caller that failed
    most."""
    window_seconds: Annotated[float, Field(ge=1, le=300)] = 30
    """Length of the window in seconds."""
    min_requests: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Number of requests in the window that the breaker needs to open by the error rate."""
    open_seconds: Annotated[float, Field(ge=1, le=300)] = 10
    """Seconds from opening until the next trial request."""
