"""The platform's pods that may reach every endpoint, in addition to the clients that its spec names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Namespaces of the operator, the gateway and Prometheus."""

    operator: str
    gateway: str
    prometheus: str
