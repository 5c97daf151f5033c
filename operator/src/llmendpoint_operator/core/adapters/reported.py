"""What the status says of adapters: an entry for each, and the condition AdaptersReady.

| reason | status | when |
|---|---|---|
| AllLoaded | True | every ready replica has every adapter |
| Loading | False | some replica does not have one yet |
| LoadFailed | False | some replica could not load one |
| NewRevision | False | the active revision's pods were not made for them |
| RuntimeCannotLoad | False | the LLMRuntime does not say that its engine loads adapters |
| NoReplica | Unknown | no replica is ready |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...api import Adapter
from ..endpoint.steps import Event
from ..pods.revision import Revision
from ..sentences import fitting
from .mounts import can_take, claims_of
from .moves import PodAdapters, Wanted, wanted_adapters

CONDITION = "AdaptersReady"
MESSAGE_LIMIT = 512
NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The condition without its times."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Reported:
    """`entries`: as in `status.adapters`. `verdict`: None without adapters."""

    entries: tuple[dict[str, Any], ...] = ()
    verdict: Verdict | None = None


def loadable(revision: Revision | None, adapters: Iterable[Adapter]) -> tuple[Wanted, ...] | None:
    """What the pods of a revision are to have; None if they load no adapters. An adapter on a claim that they have not
    mounted is left out: the next revision has it."""
    if revision is None or not revision.inputs.adapters or not revision.runtime.loads_adapters:
        return None
    recorded = revision.inputs.adapters
    mounted = set(claims_of(recorded))
    return wanted_adapters(one for one in adapters if set(claims_of([one])) <= mounted)


def report(
    adapters: Sequence[Adapter],
    active: Revision | None,
    ready: Sequence[str],
    told: Mapping[str, PodAdapters],
    live: Iterable[Mapping[str, Any]],
) -> Reported:
    """`ready`: names of the active revision's ready pods. `told`: by pod. `live`: the entries in the status; they count for
    pods that have not said yet what they have, because after a restart the operator has asked none."""
    if active is not None and _cannot(active):
        said = f"LLMRuntime {active.inputs.runtime.name} has no spec.loadsAdapters: true"
        entries = tuple(_new(one) | {"message": said} for one in adapters)
        return Reported(entries, _verdict(adapters, active, len(ready), entries) if adapters else None)
    before = {entry["name"]: entry for entry in live}
    pods = [told.get(pod, PodAdapters()) for pod in ready]
    entries = tuple(_entry(one, pods, before.get(one.name, {})) for one in adapters)
    return Reported(entries, _verdict(adapters, active, len(ready), entries) if adapters else None)


def events_of(status: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[Event, ...]:
    """Events for failures that are new, and for the moment when every replica has every adapter. `live`: the status before
    this one."""
    known = {entry["name"]: entry.get("message") for entry in live.get("adapters") or ()}
    found = [
        Event("AdapterFailed", f"{entry['name']} from {entry['source']}: {entry['message']}", "Warning")
        for entry in status.get("adapters") or ()
        if entry.get("message") and entry["message"] != known.get(entry["name"])
    ]
    now, before = _condition(status), _condition(live)
    if now.get("status") == "True" and (before.get("status"), before.get("message")) != (
        "True",
        now["message"],
    ):
        found.append(Event("AdaptersLoaded", now["message"]))
    return tuple(found)


def _condition(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((c for c in status.get("conditions") or () if c["type"] == CONDITION), {})


def _entry(adapter: Adapter, pods: Sequence[PodAdapters], before: Mapping[str, Any]) -> dict[str, Any]:
    (wanted,) = wanted_adapters([adapter])
    count = sum(pod.has(wanted) for pod in pods)
    failures = [failure for pod in pods if (failure := pod.failure(wanted)) is not None]
    message = failures[0].message if failures else ""
    unknown = sum(pod.held is None for pod in pods)
    if unknown and before.get("source") == adapter.source:
        count = max(count, min(int(before.get("readyReplicas", 0)), len(pods) - len(failures)))
        message = message or (str(before.get("message") or "") if count < len(pods) else "")
    entry = _new(adapter) | {"readyReplicas": count}
    return entry | ({"message": fitting(message, MESSAGE_LIMIT)} if message else {})


def _new(adapter: Adapter) -> dict[str, Any]:
    return {"name": adapter.name, "source": adapter.source, "readyReplicas": 0}


def _cannot(revision: Revision) -> bool:
    """Whether the revision was made for adapters, and its engine loads none."""
    return bool(revision.inputs.adapters) and not revision.runtime.loads_adapters


def _verdict(
    adapters: Sequence[Adapter], active: Revision | None, ready: int, entries: Sequence[Mapping[str, Any]]
) -> Verdict:
    if active is not None and _cannot(active):
        name = active.inputs.runtime.name
        hint = "choose a runtime that does, or set loadsAdapters there if its engine has /v1/load_lora_adapter, and `kubectl llm rollout restart`"
        return Verdict(
            "False", "RuntimeCannotLoad", f"LLMRuntime {name} has no spec.loadsAdapters: true; {hint}"
        )
    if active is not None and not can_take(active.inputs.adapters, adapters):
        made = "without adapters" if not active.inputs.adapters else "without the claim of an adapter"
        return Verdict(
            "False",
            "NewRevision",
            f"revision {active.hash} was made {made}; the revision that the spec asks for has them",
        )
    if not ready:
        return Verdict("Unknown", "NoReplica", "no replica is ready; one loads the adapters when it is")
    broken = [entry for entry in entries if entry.get("message")]
    if broken:
        first = broken[0]
        more = f"; {len(broken) - 1} more could not be loaded" if len(broken) > 1 else ""
        said = f"{first['name']} from {first['source']}: {first['message']}{more}"
        return Verdict("False", "LoadFailed", f"{said}; the model and the other adapters go on serving")
    missing = [entry for entry in entries if entry["readyReplicas"] < ready]
    if missing:
        counts = (f"{e['name']} ({e['readyReplicas']} of {ready} replicas)" for e in missing[:NAMES_SHOWN])
        more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
        return Verdict("False", "Loading", f"replicas load {', '.join(counts)}{more}")
    names = ", ".join(str(entry["name"]) for entry in entries[:NAMES_SHOWN])
    more = f" and {len(entries) - NAMES_SHOWN} more" if len(entries) > NAMES_SHOWN else ""
    return Verdict("True", "AllLoaded", f"every ready replica has {names}{more}")
