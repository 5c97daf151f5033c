"""The writes that a plan consists of, and their Events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..pods.manifests import Manifest


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event about a decision. It is written after the step that carries the decision out."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Apply:
    """Create or update a child. `optional`: nothing depends on it, so a refusal does not stop the plan."""

    manifest: Manifest
    event: Event | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child. `shared`: a model's Job, which no endpoint owns."""

    api_version: str
    kind: str
    namespace: str
    name: str
    event: Event | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the endpoint's status if its resourceVersion is unchanged."""

    status: dict[str, Any]
    resource_version: str
    events: tuple[Event, ...] = ()


Step = Apply | Delete | WriteStatus


def events_of(step: Step) -> tuple[Event, ...]:
    """The Events to write once the step is done."""
    if isinstance(step, WriteStatus):
        return step.events
    return (step.event,) if step.event is not None else ()
