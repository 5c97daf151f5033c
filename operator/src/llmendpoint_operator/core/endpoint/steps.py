"""The writes that a plan is made of, and the Events that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..pods.manifests import Manifest


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event about a decision, written after the step that carried it out."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Apply:
    """Make a child, or make it as it should be. `optional`: nothing else depends on it, so a refusal stops nothing."""

    manifest: Manifest
    event: Event | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child. `shared`: a model's Job, which belongs to no endpoint."""

    api_version: str
    kind: str
    namespace: str
    name: str
    event: Event | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the endpoint's status, if it still has this resourceVersion."""

    status: dict[str, Any]
    resource_version: str
    events: tuple[Event, ...] = ()


Step = Apply | Delete | WriteStatus


def events_of(step: Step) -> tuple[Event, ...]:
    """What is to be told once the step is done."""
    if isinstance(step, WriteStatus):
        return step.events
    return (step.event,) if step.event is not None else ()
