"""One moment of a rollout, and the facts derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ...api import Capacity, LLMEndpointSpec, Mode
from ..adapters.awaited import adapters_awaited
from ..endpoint.snapshot import Request, Snapshot
from ..pods.manifests import Manifest
from ..pods.state import (
    NO_PODS,
    Counts,
    is_alive,
    is_ready,
    ready_since,
    served_until,
    unready_since,
    unscheduled_since,
    was_ready,
)
from ..times import parse_time
from .evidence import Verification
from .machine import BEFORE_THE_SWITCH, WITH_REQUESTS, State
from .prospects import Prospect, is_stuck, prospect_of
from .records import Progress, Rejected, Traffic

LOST_SECONDS = 60
"""Seconds for which the last ready replica may be unready before it counts as lost: it may recover."""


@dataclass(frozen=True, slots=True)
class Situation:
    """`wanted`: replicas that the spec, or its scaler, wants. `counts`: pods by revision. `target`: the
    revision that the spec asks for; None if it cannot be made. `traffic`: the assignment after the moves so
    far; None before any revision got requests. `accepted`: a promote or abort accepted in this pass."""

    snapshot: Snapshot
    spec: LLMEndpointSpec
    wanted: int
    counts: Mapping[str, Counts]
    now: datetime
    target: str | None
    progress: Progress
    traffic: Traffic | None
    switched_at: datetime | None
    rejected: Rejected | None
    accepted: Request | None
    memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was derived from this situation at some cost; a changed one begins without it."""

    def asked_to(self, action: str) -> bool:
        """Whether a request for this action was accepted in this pass."""
        return self.accepted is not None and self.accepted.action == action

    def ready(self, revision: str | None) -> int:
        """Number of ready pods of a revision."""
        return self.counts.get(revision or "", NO_PODS).ready

    @property
    def green_ready(self) -> int:
        """Number of green's ready pods."""
        return self.ready(self.progress.green)

    @property
    def blue_ready(self) -> int:
        """Number of blue's ready pods."""
        return self.ready(self.progress.blue)

    @property
    def green_answers_alone(self) -> bool:
        """Whether green, which has no requests yet, could answer them while blue cannot. Such a green is kept
        until another revision is ready. False while green needs a manual promotion or verification."""
        rollout, progress = self.spec.rollout, self.progress
        proven = progress.verified or not rollout.verification.prompts
        allowed = progress.blue is None or progress.promoted or rollout.promotion == "Auto"
        before = progress.state in BEFORE_THE_SWITCH and self.wanted > 0
        return before and proven and allowed and self.green_ready > 0 and self.blue_ready == 0

    @property
    def lost_while_draining(self) -> bool:
        """Whether green has no ready pod any more while blue still has some."""
        draining = self.progress.state is State.DRAINING and self.wanted > 0
        return draining and self.green_ready == 0 and self.blue_ready > 0

    def live(self, revision: str | None) -> int:
        """The replica count of the revision's Deployment; 0 without one."""
        deployment = self.snapshot.deployments.get(revision or "")
        return 0 if deployment is None else int(deployment.get("spec", {}).get("replicas", 1))

    def others(self) -> list[str]:
        """Revisions with pods that are neither blue nor green, sorted."""
        about = {self.progress.blue, self.progress.green}
        return sorted(h for h in self.snapshot.deployments if h not in about and self.live(h) > 0)

    def weight(self, revision: str | None) -> int:
        """The revision's percent of new requests."""
        return 0 if self.traffic is None or revision is None else self.traffic.weights.get(revision, 0)

    def since(self, moment: datetime | None) -> float:
        """Seconds since `moment`; 0 if the clock went back."""
        return 0.0 if moment is None else max(0.0, (self.now - moment).total_seconds())

    def remaining(self, moment: datetime | None, seconds: float) -> float:
        """Seconds until `seconds` have passed since `moment`; 0 if they have."""
        if moment is None:
            return 0.0
        return max(0.0, (moment + timedelta(seconds=seconds) - self.now).total_seconds())

    @property
    def adapters_awaited(self) -> float:
        """Seconds to wait for adapters of green's ready pods; 0: none is awaited, as where no blue answers meanwhile."""
        if self.progress.blue is None or self.progress.mode is not Mode.SURGE:
            return 0.0
        green, snapshot = self.progress.green or "", self.snapshot
        pods, told = snapshot.pods.get(green, ()), snapshot.observed.adapters
        return adapters_awaited(snapshot.revisions.get(green), self.spec.adapters, pods, told, self.now)

    @property
    def verification(self) -> Verification | None:
        """The result of green's verification so far; None if unknown."""
        found = self.snapshot.observed.evidence.verification
        return found if found is not None and found.revision == self.progress.green else None

    @property
    def laggards(self) -> tuple[str, ...] | None:
        """Ready gateways that do not follow the assignment yet; None while that is unknown."""
        evidence = self.snapshot.observed.evidence
        if not evidence.gateways_known:
            return None
        epoch = self.traffic.epoch if self.traffic else 0
        return tuple(v.pod for v in evidence.gateways if v.epoch is None or v.epoch < epoch)

    @property
    def acknowledged(self) -> bool:
        """Whether every Ready gateway follows the assignment."""
        return self.laggards == ()

    @property
    def keeps_old_pods(self) -> bool:
        """Whether the old revision's pods are still needed, by its last requests or by gateways that lag
        behind."""
        delay = self.remaining(self.switched_at, self.spec.rollout.scale_down_delay)
        return delay > 0 or self.awaits_gateways or self.lost_while_draining

    @property
    def awaits_gateways(self) -> bool:
        """Whether a gateway may still send to the old revision. False if no revision ever got requests, or no
        caller reaches a gateway. Also false at zero: gateways follow only to routable replicas."""
        lost = self.snapshot.observed.evidence.gateways_lost
        return not (self.traffic is None or self.wanted == 0 or lost or self.acknowledged)

    @property
    def verifying_at_zero(self) -> bool:
        """Whether one replica of green must run for its verification at zero replicas."""
        progress = self.progress
        return (
            self.wanted == 0
            and self.spec.rollout.verification.verify_at_zero
            and progress.blue is not None
            and not progress.verified
            and progress.state in BEFORE_THE_SWITCH
        )

    @property
    def green_wanted(self) -> int:
        """Number of green's pods that must exist now."""
        if self.wanted == 0:
            return int(self.verifying_at_zero)
        exchanged = self.progress.state in (State.OBSERVING, State.DRAINING)
        if self.progress.mode is Mode.IN_PLACE and not exchanged:
            return min(self.progress.step or 1, self.wanted)
        return self.wanted

    @property
    def minimum(self) -> int:
        """Ready pods of both revisions that an exchange in place must leave; at least one with capacity
        Auto."""
        least, auto = self.spec.rollout.min_available, self.spec.rollout.capacity is Capacity.AUTO
        return min(max(1, least) if auto else least, self.wanted)

    @property
    def green_needed(self) -> int:
        """Ready pods that green needs before it is verified and gets requests. One is enough if blue does not
        answer: waiting for more would lose requests."""
        alone = self.progress.blue is None or self.blue_ready == 0
        return min(1, self.green_wanted) if alone else self.green_wanted

    @property
    def green_scheduled(self) -> bool:
        """Whether as many of green's pods have nodes as must be ready."""
        pods = self.green_pods
        return sum(unscheduled_since(pod) is None for pod in pods) >= min(
            self.green_needed, self.green_wanted
        )

    @property
    def green_pods(self) -> tuple[Manifest, ...]:
        """Green's pods, without terminating and finished ones."""
        return tuple(filter(is_alive, self.snapshot.pods.get(self.progress.green or "", ())))

    @property
    def unplaced(self) -> tuple[Manifest, ...]:
        """Green's pods without a node."""
        return tuple(p for p in self.green_pods if not is_ready(p) and unscheduled_since(p) is not None)

    @property
    def stuck(self) -> bool:
        """Whether a pod of green waits for a node, or for a volume that another node holds."""
        told = self.snapshot.observed.evidence.told
        return any(is_stuck(pod, told.get(str(pod["metadata"]["name"]))) for pod in self.green_pods)

    @property
    def prospect(self) -> Prospect | None:
        """The best prospect of green's pods without a node: one that comes is worth waiting for. None:
        unknown."""
        told = self.snapshot.observed.evidence.told
        found = [prospect_of(pod, told.get(str(pod["metadata"]["name"])), self.now) for pod in self.unplaced]
        order = (Prospect.COMING, Prospect.NONE, Prospect.SILENT)
        return next((prospect for prospect in order if prospect in found), None)

    @property
    def green_lost_since(self) -> datetime | None:
        """When the last of green's pods stopped being ready, according to the pods."""
        changed = [parse_time(unready_since(pod)) for pod in self.green_pods]
        return max((at for at in changed if at is not None), default=self.progress.state_since)

    @property
    def blue_lost(self) -> bool:
        """Whether blue has had no ready pod for LOST_SECONDS, so that its places may be taken."""
        pods = [pod for pod in self.snapshot.pods.get(self.progress.blue or "", ()) if is_alive(pod)]
        changed = (parse_time(unready_since(pod)) for pod in pods)
        return self.blue_ready == 0 and all(at is None or self.since(at) >= LOST_SECONDS for at in changed)

    @property
    def crashed_pods(self) -> tuple[Manifest, ...]:
        """Green's pods that had served and whose engine ended since the switch. Excluded are engines that
        ended while loading, and pods that were removed from their node. Kubelets record whole seconds."""
        pods = self.snapshot.pods.get(self.progress.green or "", ())
        switched = self.switched_at.replace(microsecond=0) if self.switched_at else self.now
        ended = ((p, parse_time(served_until(p))) for p in pods if is_alive(p) and not is_ready(p))
        return tuple(pod for pod, at in ended if at is not None and at >= switched)

    @property
    def waking_since(self) -> datetime | None:
        """When green's first pod was created, if none of green's pods was ever ready and blue's became ready
        only after that: both start together, as from zero. Else None."""
        pods = self.snapshot.pods
        green = [pod for pod in pods.get(self.progress.green or "", ()) if is_alive(pod)]
        made = [parse_time(pod["metadata"].get("creationTimestamp")) for pod in green]
        ready = [parse_time(ready_since(pod)) for pod in pods.get(self.progress.blue or "", ())]
        begun = min((moment for moment in made if moment is not None), default=None)
        before = min((moment for moment in ready if moment is not None), default=None)
        together = begun is not None and before is not None and begun <= before
        return begun if together and not any(was_ready(pod) for pod in green) else None

    def ready_by_revision(self) -> Mapping[str, int]:
        """Number of ready pods of each revision that has some, sorted by hash."""
        return {hash_: count.ready for hash_, count in sorted(self.counts.items()) if hash_ and count.ready}

    @property
    def green_share(self) -> int:
        """Percent of requests for green: at a canary step its weight, after the last one all but those that blue keeps for
        comparison."""
        return self.canary_weight or 100 - self._control

    @property
    def canary_weight(self) -> int | None:
        """Percent for green at the current canary step; None after the last one."""
        canary, step = self.spec.rollout.canary, self.progress.step
        if canary is None or step is None or not self._shared or step >= len(canary.steps):
            return None
        return canary.steps[step].weight

    @property
    def _shared(self) -> bool:
        """Whether blue kept its pods when green got its first requests, so that both may get some."""
        surge = self.progress.mode is Mode.SURGE
        return surge and self.progress.step is not None and self.progress.state in WITH_REQUESTS

    @property
    def _control(self) -> int:
        """Percent that blue keeps."""
        return (self.spec.rollout.observe.control or 0) if self._shared else 0
