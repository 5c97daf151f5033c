"""Who reaches every endpoint's pods beside those that its spec names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Namespaces of those who reach every endpoint."""

    operator: str
    gateway: str
    prometheus: str
