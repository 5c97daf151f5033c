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
    """Requests that may wait. Who comes when so many do gets 429 with Retry-After, or takes the place of a request of
    lower priority, or of a caller that has more waiting. 0: none waits; replicas get every request at once, and what
    finds none is answered with 503."""
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

    queue: QueueSpec = QueueSpec()
    """How requests wait in the gateway while every replica is busy, or none is there yet."""
