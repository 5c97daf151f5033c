"""How the gateway treats an endpoint's requests: how they wait, and when none is let through."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel


class QueueSpec(ApiModel):
    """How requests wait in the gateway while every replica is busy, or none is there yet.

    The bounds are of each gateway pod; all endpoints together have 5,000 requests and 128 MiB of bodies in one.
    """

    max_requests: Annotated[int, Field(ge=0, le=5000)] = 1000
    """Requests that may wait. When so many wait, a new one gets 429 with Retry-After, unless it displaces another: a request
    of a caller that has more waiting, or one of its own caller with lower priority. 0: no request waits; replicas get every
    request at once, and without a replica the answer is 503."""
    timeout_seconds: Annotated[float, Field(ge=1, le=3000)] | None = None
    """Seconds for which a request waits before it is answered with 503 and Retry-After. Absent: the chart's
    `gateway.holdSeconds`. Keep it below the patience of the callers and of a load balancer in front."""
    waiting_per_replica: Annotated[int, Field(ge=0, le=10_000)] = 4
    """Requests that a replica may have beside those that it computes (engine.maxNumSeqs) before it gets no more and
    further ones wait in the gateway. Few keep the order fair and let a new replica help at once; 0 leaves a batch short
    for the moment between the end of one request and the next."""
    max_kv_usage: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of a replica's KV cache that live requests may hold before it gets no more."""


class TrafficSpec(ApiModel):
    """How the gateway treats requests."""

    first_byte_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Seconds in which a replica must begin to answer a request with `stream: true`. After that one other replica is tried,
    and then the answer is 504. Two such time-outs in three requests in a row, from several callers, eject the replica. The
    limit does not apply to requests without `stream: true`, which have an hour in all. Absent: no limit."""
    queue: QueueSpec = QueueSpec()
    """How requests wait in the gateway while every replica is busy, or none is there yet."""


class CircuitBreakerSpec(ApiModel):
    """When the gateway stops sending requests to the endpoint, because they only fail.

    It opens at the error rate, and when every replica is ejected. Then requests are answered at once, with 503
    and Retry-After. After openSeconds one request at a time tries; good answers close it. While a rollout watches its
    new revision the breaker stays closed, and a rollback mends it.
    """

    error_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of failed requests in the window, from 0 to 1, at which the breaker opens. A request failed when its caller got
    a 5xx, or when its replica broke off or could not be reached and the retry failed, too. 429 does not count. The share
    must also be reached without the requests of the caller that failed most."""
    window_seconds: Annotated[float, Field(ge=1, le=300)] = 30
    """Seconds that the rate is taken over."""
    min_requests: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Requests in the window below which the rate says nothing."""
    open_seconds: Annotated[float, Field(ge=1, le=300)] = 10
    """Seconds until the next try."""
