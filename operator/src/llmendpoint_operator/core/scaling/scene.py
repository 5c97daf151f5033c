"""All that one decision is made from: what stands in the snapshot, what the gateways tell, and what is remembered.

The memory lives in the leader. A new leader begins with an empty one: it knows the count from the status, waits for
figures, and lowers nothing before a whole window of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ...api import LLMEndpointSpec
from ...api.autoscaling import AutoscalingSpec
from ..endpoint.snapshot import Snapshot
from ..pods.manifests import Manifest
from ..pods.state import is_alive, is_ready, unscheduled_since
from ..times import parse_time
from .crowd import Crowd
from .demand import Demand
from .smoothing import Series

NODE_SECONDS = 30
"""A replica that finds no node counts as loading for so long; then the count may be lowered although it waits."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one endpoint. `polled_at`: the last decision; `active_at`: when it was last called; `failures`: polls in a row
    without any figure; `recommendations` and `changes`: what the smoother looks back on."""

    polled_at: datetime
    active_at: datetime
    failures: int = 0
    recommendations: Series = ()
    changes: Series = ()
    crowd: Crowd | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """`current` is the count that holds now; `ready` the pods that serve; `loading` whether one of them is on its way;
    `max_num_seqs` what the spec says of a replica's batch. Nothing is lowered before a revision has served: `served`."""

    spec: AutoscalingSpec
    current: int
    ready: tuple[str, ...] = ()
    loading: bool = False
    served: bool = True
    max_num_seqs: int | None = None
    demand: Demand | None = None

    @property
    def serving(self) -> int:
        """Replicas that answer now; in a canary both revisions have as many as are wanted."""
        return min(len(self.ready), self.current)

    @property
    def called(self) -> bool:
        """Whether more requests wait or run than the activation threshold, on whichever revision."""
        return self.demand is not None and self.demand.requests > self.spec.activation_threshold

    @property
    def complete(self) -> bool:
        """Whether everybody who was asked has told."""
        return self.demand is not None and not self.demand.partial

    @property
    def unheard(self) -> bool:
        """Whether nobody calls, and whoever does will be held and seen."""
        return self.demand is not None and self.demand.held and not self.called


def read_scene(snapshot: Snapshot, spec: AutoscalingSpec, current: int, now: datetime) -> Scene:
    """Of the revisions that get requests; their demand comes later."""
    endpoint = snapshot.endpoint
    assert endpoint.spec is not None
    active = endpoint.status.get("activeRevision")
    traffic = endpoint.status.get("traffic") or {}
    serving = {item["revision"] for item in traffic.get("weights") or () if item["weight"]} | {active}
    pods = [pod for hash_ in serving if hash_ for pod in snapshot.pods.get(hash_, ()) if is_alive(pod)]
    return Scene(
        spec=spec,
        current=current,
        ready=tuple(sorted(str(pod["metadata"]["name"]) for pod in pods if is_ready(pod))),
        loading=any(_loads(pod, endpoint.spec, now) for pod in pods),
        served=active is not None,
        max_num_seqs=endpoint.spec.engine.max_num_seqs,
    )


def _loads(pod: Manifest, spec: LLMEndpointSpec, now: datetime) -> bool:
    """Not ready, and within its time: to load, or to find a node."""
    if is_ready(pod):
        return False
    waiting, created = unscheduled_since(pod), pod["metadata"].get("creationTimestamp")
    if waiting is not None:
        began, limit = parse_time(waiting or created), float(NODE_SECONDS)
    else:
        began, limit = (
            parse_time(pod.get("status", {}).get("startTime") or created),
            spec.progress_deadline_seconds,
        )
    return began is None or (now - began).total_seconds() < limit
