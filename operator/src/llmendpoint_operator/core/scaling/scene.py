"""The inputs of one decision: the snapshot, the gateways' reports, and the memory.

The memory is kept by the leader. A new leader starts with an empty one: it takes the count from the status,
waits for figures, and lowers nothing before a whole window of its own has passed.
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
"""A replica without a node counts as loading for this long. After that the count may be lowered."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory for one endpoint. `polled_at`: the last poll. `active_at`: when it last had requests.
    `failures`: consecutive polls without any figure. `recommendations`, `changes`: the history for
    smoothing."""

    polled_at: datetime
    active_at: datetime
    failures: int = 0
    recommendations: Series = ()
    changes: Series = ()
    crowd: Crowd | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """`current`: the present count. `ready`: the pods that serve. `loading`: whether a replica is starting.
    `served`: whether a revision has served yet; nothing is lowered before that. `max_num_seqs`: batch size in
    the spec."""

    spec: AutoscalingSpec
    current: int
    ready: tuple[str, ...] = ()
    loading: bool = False
    served: bool = True
    max_num_seqs: int | None = None
    demand: Demand | None = None

    @property
    def serving(self) -> int:
        """Replicas that answer now, at most `current`: in a canary each revision has that many."""
        return min(len(self.ready), self.current)

    @property
    def called(self) -> bool:
        """Whether more requests wait or run than the activation threshold, over all revisions."""
        return self.demand is not None and self.demand.requests > self.spec.activation_threshold

    @property
    def complete(self) -> bool:
        """Whether every gateway that was asked has reported."""
        return self.demand is not None and not self.demand.partial

    @property
    def unheard(self) -> bool:
        """Whether there are no requests, and the gateways would hold and report new ones."""
        return self.demand is not None and self.demand.held and not self.called


def read_scene(snapshot: Snapshot, spec: AutoscalingSpec, current: int, now: datetime) -> Scene:
    """The scene of the revisions with requests. The caller adds the demand."""
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
    """Whether the pod is not ready and within its time to load or to find a node."""
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
