"""Which replicas are removed when the count falls, and in what order.

Kubernetes removes unready pods first, then by the annotation `controller.kubernetes.io/pod-deletion-cost`. By
default it removes the newest, even if that is busy. So if a revision with requests loses some but not all of
its pods:

1. the ready pods with the fewest requests in flight, as the gateways count them, are written to
   `status.traffic.draining`, and gateways send them no new requests;
2. the operator waits until every Ready gateway has acknowledged that, for ACKNOWLEDGE_SECONDS at most;
3. those pods get the annotation, and only then the Deployment shrinks.

Every step can be read from the status and the pods, so a restart continues where it was. Without a gateway,
or if none has been Ready for a minute, the Deployment shrinks at once. A pod that still loads has no
requests; it counts as unready, not as idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Apply, Event, Step
from ..pods.manifests import Manifest
from ..pods.state import is_ready, is_terminating
from ..rollout.evidence import ACKNOWLEDGE_SECONDS, Evidence
from ..times import parse_time

COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
COST = "-1000"
"""Below 0, the cost of pods without the annotation."""
POLL_SECONDS = 1.0
"""Seconds until the next look even without news from a gateway; news triggers it sooner."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod to remove. `in_flight` is None if no gateway knows the pod."""

    pod: Manifest
    in_flight: int | None

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """What to do now. `replicas`: the counts that Deployments may have now. They are not lowered until no
    gateway sends to the pods to remove."""

    replicas: Mapping[str, int]
    draining: tuple[str, ...] = ()
    """The new `status.traffic.draining`, sorted."""
    draining_since: datetime | None = None
    """When `draining` last got a new name. Gateways have ACKNOWLEDGE_SECONDS from then on."""
    chosen: tuple[Victim, ...] = ()
    """Ready pods that must get the annotation before the Deployment shrinks."""
    load: Mapping[str, int] = field(default_factory=dict)
    """Requests in flight by pod."""
    asks_gateways: bool = False
    """Whether the next step depends on the gateways' states."""

    @property
    def requeue_after(self) -> float | None:
        """Seconds after which to requeue, or None."""
        return POLL_SECONDS if self.asks_gateways else None


def plan_scale_down(
    snapshot: Snapshot, replicas: Mapping[str, int], shares: Mapping[str, int], now: datetime
) -> ScaleDown:
    """`replicas`: the rollout's count for each revision. `shares`: each revision's percent of new
    requests."""
    evidence = snapshot.observed.evidence
    traffic = snapshot.endpoint.status.get("traffic") or {}
    before = _drained(snapshot, tuple(traffic.get("draining") or ()), shares)
    leaving = _leaving(snapshot, before)
    served = [hash_ for hash_, count in replicas.items() if count > 0 and shares.get(hash_, 0) > 0]
    surplus = {hash_: _surplus(snapshot.pods.get(hash_, ()), replicas[hash_]) for hash_ in served}
    nobody = evidence.gateways_lost or (evidence.gateways_known and not evidence.gateways)
    if nobody or not any(surplus.values()):
        return ScaleDown(replicas, leaving)
    held = {hash_: max(replicas[hash_], _live(snapshot, hash_)) for hash_ in served if surplus[hash_]}
    if not evidence.gateways_known:
        since = parse_time(traffic.get("drainingSince"))
        return ScaleDown({**replicas, **held}, before, since, asks_gateways=True)
    load = in_flight(evidence)
    chosen = tuple(v for h in served for v in _victims(snapshot.pods.get(h, ()), surplus[h], load, before))
    draining = tuple(sorted({*leaving, *(victim.name for victim in chosen)}))
    fresh = not set(draining) <= set(before)
    since = now if fresh else parse_time(traffic.get("drainingSince")) or now
    epoch = int(traffic.get("epoch", 0))
    if not fresh and _acknowledged(evidence, epoch, since, now):
        return ScaleDown(replicas, draining, since, chosen, load)
    return ScaleDown({**replicas, **held}, draining, since, load=load, asks_gateways=True)


def cost_steps(snapshot: Snapshot, decision: ScaleDown) -> Iterator[Step]:
    """Annotate the pods to remove, and remove the annotation from pods that stay after all."""
    chosen = {victim.name for victim in decision.chosen}
    for victim in decision.chosen:
        if _cost(victim.pod) != COST:
            yield Apply(_annotated(victim.pod, {COST_ANNOTATION: COST}), _event(decision, victim))
    for pods in snapshot.pods.values():
        for pod in pods:
            name = pod["metadata"]["name"]
            spared = name not in chosen and name not in decision.draining
            if spared and _cost(pod) is not None and not is_terminating(pod):
                yield Apply(_annotated(pod, {}))


def in_flight(evidence: Evidence) -> dict[str, int]:
    """Requests by pod, summed over the gateways that answered."""
    total: dict[str, int] = {}
    for gateway in evidence.gateways:
        for pod, count in gateway.in_flight.items():
            total[pod] = total.get(pod, 0) + count
    return total


def _surplus(pods: Sequence[Manifest], wanted: int) -> int:
    """How many ready pods must go. Kubernetes removes unready ones before them."""
    return max(0, sum(is_ready(pod) for pod in pods) - wanted)


def _victims(
    pods: Sequence[Manifest], count: int, load: Mapping[str, int], before: tuple[str, ...]
) -> tuple[Victim, ...]:
    """The `count` ready pods to remove; among equals the newest first."""
    ready = [pod for pod in pods if is_ready(pod)]
    ready.sort(key=lambda pod: str(pod["metadata"]["name"]))
    ready.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    ready.sort(key=lambda pod: _rank(pod["metadata"]["name"], load, before))
    return tuple(Victim(pod, load.get(pod["metadata"]["name"])) for pod in ready[:count])


def _rank(name: str, load: Mapping[str, int], before: tuple[str, ...]) -> tuple[bool, bool, int]:
    """Sort key; the lowest are removed first: already chosen, known to a gateway, few requests."""
    return name not in before, name not in load, load.get(name, 0)


def _drained(snapshot: Snapshot, listed: tuple[str, ...], shares: Mapping[str, int]) -> tuple[str, ...]:
    """The listed pods that exist. If no ready pod with requests would be left, only terminating ones stay
    listed."""
    if not listed:
        return ()
    pods = [pod for found in snapshot.pods.values() for pod in found]
    ready = {
        pod["metadata"]["name"]
        for revision, share in shares.items()
        for pod in snapshot.pods.get(revision, ())
        if share and is_ready(pod)
    }
    everybody = bool(ready) and ready <= set(listed)
    there = {p["metadata"]["name"] for p in pods if is_terminating(p) or not everybody}
    return tuple(name for name in listed if name in there)


def _leaving(snapshot: Snapshot, before: tuple[str, ...]) -> tuple[str, ...]:
    """Drained pods that are terminating; they stay listed until they are gone."""
    if not before:
        return ()
    ending = {p["metadata"]["name"] for pods in snapshot.pods.values() for p in pods if is_terminating(p)}
    return tuple(sorted(ending & set(before)))


def _acknowledged(evidence: Evidence, epoch: int, since: datetime, now: datetime) -> bool:
    if (now - since).total_seconds() >= ACKNOWLEDGE_SECONDS:
        return True
    views = evidence.gateways
    return evidence.gateways_known and all(v.epoch is not None and v.epoch >= epoch for v in views)


def _live(snapshot: Snapshot, hash_: str) -> int:
    deployment = snapshot.deployments.get(hash_)
    return int(deployment["spec"].get("replicas", 1)) if deployment else 0


def _cost(pod: Manifest) -> Any:
    return (pod["metadata"].get("annotations") or {}).get(COST_ANNOTATION)


def _annotated(pod: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """The apply patch. It has the uid, so that a deleted pod is not created anew."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid") if key in pod["metadata"]}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def _event(decision: ScaleDown, victim: Victim) -> Event:
    staying = [count for pod, count in decision.load.items() if pod not in decision.draining]
    said = "an unknown number of" if victim.in_flight is None else str(victim.in_flight)
    others = f"; the least busy of the others has {min(staying)}" if staying else ""
    return Event("ReplicaChosen", f"replica {victim.name} is removed, with {said} requests in flight{others}")
