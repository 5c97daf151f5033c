"""The operator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmendpoint_fit.core.hub import PUBLIC_HUB

from .core.endpoint.allowed import BY_DEFAULT, Allowed

DEFAULT_RETENTION_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Keda:
    """How KEDA reaches this operator. `address` and `authentication` are written into ScaledObjects. This
    process listens on `port` and reads tls.crt, tls.key and ca.crt from the folder `tls`."""

    address: str
    authentication: str
    port: int
    tls: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of the command line."""

    http_port: int = 8082
    watch_namespace: str | None = None
    kubeconfig: str | None = None
    gateway_url: str | None = None
    lease_seconds: int = 15
    gateway_namespace: str | None = None
    prometheus_namespace: str = "monitoring"
    probe_image: str | None = None
    gateway_state_port: int = 8081
    hub_endpoint: str = PUBLIC_HUB
    model_image: str | None = None
    cache_retention_seconds: float = DEFAULT_RETENTION_SECONDS
    keda: Keda | None = None
    gateway_token: Path | None = None
    allowed: Allowed = BY_DEFAULT
