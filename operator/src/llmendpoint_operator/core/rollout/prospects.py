"""Whether a pod will get a node, and whether its volume can be attached. The sources are the pod's conditions
and the Events that autoscalers and the attach controller write about it.

| source | what it says | consequence |
|---|---|---|
| a scheduling gate (Kueue), a preemption (nominatedNodeName) | the scheduler will place the pod later | wait |
| TriggeredScaleUp (cluster-autoscaler), Nominated (Karpenter) | a node will come | wait, for COMING_SECONDS at most |
| NotTriggerScaleUp, Karpenter's FailedScheduling | no node will come | decide now |
| none | nothing | wait for rollout.unschedulableSeconds |

The latest Event counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from ..endpoint.causes import Cause, unschedulable
from ..pods.manifests import Manifest
from ..pods.state import is_alive, is_gated, is_ready, unscheduled_since
from ..sentences import fitting
from ..times import parse_time

COMING_SECONDS = 1800
"""How long the promise of a node holds: twice the time that cluster-autoscaler gives a new node to join."""
KARPENTER = "karpenter"
COMES = frozenset({"TriggeredScaleUp", "Nominated"})
COMES_NOT = "NotTriggerScaleUp"
ATTACH_FAILED = "FailedAttachVolume"
MULTI_ATTACH = "Multi-Attach error"
NOT_STARTED = frozenset({"ContainerCreating", "PodInitializing"})


class Prospect(StrEnum):
    """Whether a pod without a node will get one. SILENT: no Event says so or denies it."""

    COMING = "Coming"
    NONE = "None"
    SILENT = "Silent"


@dataclass(frozen=True, slots=True)
class Told:
    """What the Events of one pod say. `volume`: why its volume is not attached; empty if no Event says so."""

    prospect: Prospect = Prospect.SILENT
    message: str = ""
    at: datetime | None = None
    volume: str = ""


def read_events(events: Sequence[Mapping[str, Any]]) -> Told:
    """Reads one pod's Events, in any order. Users who may write Events can forge them, for their namespace
    only."""
    words: list[tuple[str, Prospect, str]] = []
    volumes: list[tuple[str, str]] = []
    for event in events:
        reason, message, at = str(event.get("reason")), str(event.get("message") or ""), _at(event)
        if reason in COMES:
            words.append((at, Prospect.COMING, message))
        elif reason == COMES_NOT or (reason == "FailedScheduling" and _component(event) == KARPENTER):
            words.append((at, Prospect.NONE, message))
        elif reason == ATTACH_FAILED:
            volumes.append((at, message))
    volume = max(volumes, default=("", ""))[1]
    at, prospect, message = max(
        words, key=lambda word: (word[0], word[1] is Prospect.COMING), default=("", Prospect.SILENT, "")
    )
    return Told(prospect, fitting(message, 300), parse_time(f"{at}Z"), fitting(volume, 300))


def prospect_of(pod: Manifest, told: Told | None, now: datetime) -> Prospect | None:
    """Whether a pod without a node will get one; None until its Events were read."""
    if is_gated(pod) or pod.get("status", {}).get("nominatedNodeName"):
        return Prospect.COMING
    if told is None:
        return None
    if told.prospect is Prospect.COMING and told.at is not None and promised_for(told, now) <= 0:
        return Prospect.SILENT
    return told.prospect


def promised_for(told: Told, now: datetime) -> float:
    """Seconds until the promise of a node expires; 0 without one."""
    if told.prospect is not Prospect.COMING or told.at is None:
        return 0.0
    return max(0.0, (told.at + timedelta(seconds=COMING_SECONDS) - now).total_seconds())


def is_stuck(pod: Manifest, told: Told | None) -> bool:
    """Whether the pod has no node, or waits for a volume that another node holds."""
    if not is_alive(pod) or is_ready(pod):
        return False
    return unscheduled_since(pod) is not None or bool(
        told is not None and told.volume and asks_for_volume(pod)
    )


def worth_asking(pod: Manifest) -> bool:
    """Whether Events may say more about the pod than its status does."""
    if not is_alive(pod) or is_ready(pod):
        return False
    return unschedulable(pod) is not None or asks_for_volume(pod)


def asks_for_volume(pod: Manifest) -> bool:
    """Whether the pod has a node and no container has started, as while a volume is being attached."""
    status = pod.get("status", {})
    if not pod.get("spec", {}).get("nodeName") or status.get("phase") != "Pending":
        return False
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return all((s.get("state", {}).get("waiting") or {}).get("reason") in NOT_STARTED for s in statuses)


def waiting_cause(pods: Iterable[Manifest], told: Mapping[str, Told], now: datetime) -> Cause | None:
    """The cause for pods that wait for a node which will come. It is expected: nothing is wrong."""
    for pod in pods:
        name = str(pod["metadata"]["name"])
        if not comes(pod, told, now):
            continue
        if is_gated(pod):
            said = (
                f"pod {name} has a scheduling gate; the tool that set it (for example Kueue) must remove it"
            )
            return Cause("SchedulingGated", said, expected=True)
        word = told.get(name)
        said = f": {word.message}" if word and word.message else ""
        return Cause("WaitingForNode", f"pod {name} waits for a node that will come{said}", expected=True)
    return None


def comes(pod: Manifest, told: Mapping[str, Told], now: datetime) -> bool:
    """Whether the pod has no node and one will come."""
    if not is_alive(pod) or unscheduled_since(pod) is None:
        return False
    return prospect_of(pod, told.get(str(pod["metadata"]["name"])), now) is Prospect.COMING


def volume_cause(pods: Iterable[Manifest], told: Mapping[str, Told]) -> Cause | None:
    """The cause for a pod whose volume cannot be attached to its node."""
    for pod in pods:
        name = str(pod["metadata"]["name"])
        word = told.get(name)
        if word is None or not word.volume or not (is_alive(pod) and asks_for_volume(pod)):
            continue
        hint = "see `kubectl describe pod`"
        if MULTI_ATTACH in word.volume:
            hint = (
                "a ReadWriteOnce claim is held by a replica on another node: use a claim with ReadWriteMany or "
                "ReadOnlyMany, or write spec.rollout.capacity: Recreate, which stops the old replica first"
            )
        return Cause("VolumeNotAttached", f"pod {name}: {word.volume}; {hint}")
    return None


def _at(event: Mapping[str, Any]) -> str:
    """Time of the last occurrence, RFC 3339 in whole seconds, so that texts sort like times."""
    series = event.get("series") or {}
    found = (
        series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
        event.get("firstTimestamp"), event.get("metadata", {}).get("creationTimestamp"),
    )  # fmt: skip
    return str(next((text for text in found if text), ""))[:19]


def _component(event: Mapping[str, Any]) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")
