"""One moment of a rollout, and the facts that are read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...api import Capacity, LLMEndpointSpec, Mode
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
"""A last replica that was unready for less is not given up: it may be back."""


@dataclass(frozen=True, slots=True)
class Situation:
    """`wanted`: replicas that the spec, or its scaler, wants. `counts`: of pods, by revision. `target`: what the spec asks
    for, None when it cannot be made. `traffic`: as it will be after what was decided so
    far, None before anything got requests. `accepted`: a promote or abort that was accepted in this moment."""

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

    def asked_to(self, action: str) -> bool:
        """Whether a request to do so was accepted in this moment."""
        return self.accepted is not None and self.accepted.action == action

    def ready(self, revision: str | None) -> int:
        """Ready pods of a revision."""
        return self.counts.get(revision or "", NO_PODS).ready

    @property
    def green_ready(self) -> int:
        """Ready pods."""
        return self.ready(self.progress.green)

    @property
    def blue_ready(self) -> int:
        """Ready pods."""
        return self.ready(self.progress.blue)

    @property
    def green_answers_alone(self) -> bool:
        """Whether green, which has no requests yet, could answer them, and blue cannot: it is not given up before another
        is ready. Where somebody has to promote it, or prompts are open, it may not answer."""
        rollout, progress = self.spec.rollout, self.progress
        proven = progress.verified or not rollout.verification.prompts
        allowed = progress.blue is None or progress.promoted or rollout.promotion == "Auto"
        before = progress.state in BEFORE_THE_SWITCH and self.wanted > 0
        return before and proven and allowed and self.green_ready > 0 and self.blue_ready == 0

    @property
    def lost_while_draining(self) -> bool:
        """Whether the new revision has no ready pod any more while the old one's last are still there."""
        draining = self.progress.state is State.DRAINING and self.wanted > 0
        return draining and self.green_ready == 0 and self.blue_ready > 0

    def live(self, revision: str | None) -> int:
        """The count that the revision's Deployment has; 0 without one."""
        deployment = self.snapshot.deployments.get(revision or "")
        return 0 if deployment is None else int(deployment.get("spec", {}).get("replicas", 1))

    def others(self) -> list[str]:
        """Revisions with pods that this rollout is not about, sorted."""
        about = {self.progress.blue, self.progress.green}
        return sorted(h for h in self.snapshot.deployments if h not in about and self.live(h) > 0)

    def weight(self, revision: str | None) -> int:
        """Percent of new requests."""
        return 0 if self.traffic is None or revision is None else self.traffic.weights.get(revision, 0)

    def since(self, moment: datetime | None) -> float:
        """Seconds; 0 when the clock went back."""
        return 0.0 if moment is None else max(0.0, (self.now - moment).total_seconds())

    def remaining(self, moment: datetime | None, seconds: float) -> float:
        """Seconds until so many have passed; 0 when they have."""
        if moment is None:
            return 0.0
        return max(0.0, (moment + timedelta(seconds=seconds) - self.now).total_seconds())

    @property
    def verification(self) -> Verification | None:
        """What is known of green's."""
        found = self.snapshot.observed.evidence.verification
        return found if found is not None and found.revision == self.progress.green else None

    @property
    def laggards(self) -> tuple[str, ...] | None:
        """Ready gateways that do not follow the assignment yet; None while nobody knows."""
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
        """Whether what was switched away from is still needed: its last requests, and gateways that lag behind."""
        delay = self.remaining(self.switched_at, self.spec.rollout.scale_down_delay)
        return delay > 0 or self.awaits_gateways or self.lost_while_draining

    @property
    def awaits_gateways(self) -> bool:
        """Whether a gateway may still send to what was switched away from. None does where nothing ever got requests, or
        no caller reaches one; scaled to zero there is no replica without which a gateway could follow."""
        lost = self.snapshot.observed.evidence.gateways_lost
        return not (self.traffic is None or self.wanted == 0 or lost or self.acknowledged)

    @property
    def verifying_at_zero(self) -> bool:
        """Whether one replica of green shall run though the endpoint is scaled to zero."""
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
        """Pods of green that shall be there now."""
        if self.wanted == 0:
            return int(self.verifying_at_zero)
        exchanged = self.progress.state in (State.OBSERVING, State.DRAINING)
        if self.progress.mode is Mode.IN_PLACE and not exchanged:
            return min(self.progress.step or 1, self.wanted)
        return self.wanted

    @property
    def minimum(self) -> int:
        """Ready pods of both revisions together that an exchange in place leaves: with capacity Auto one at least."""
        least, auto = self.spec.rollout.min_available, self.spec.rollout.capacity is Capacity.AUTO
        return min(max(1, least) if auto else least, self.wanted)

    @property
    def green_needed(self) -> int:
        """Ready pods of green without which it is not verified and gets no requests. One is enough where nobody else
        answers requests: waiting for more would lose them."""
        alone = self.progress.blue is None or self.blue_ready == 0
        return min(1, self.green_wanted) if alone else self.green_wanted

    @property
    def green_scheduled(self) -> bool:
        """Whether as many pods have a node as must be ready."""
        pods = self.green_pods
        return sum(unscheduled_since(pod) is None for pod in pods) >= min(
            self.green_needed, self.green_wanted
        )

    @property
    def green_pods(self) -> tuple[Manifest, ...]:
        """Of green, that are or will be of use."""
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
        """Whether a node will come: one that comes for any of green's pods is waited for. None: not known yet."""
        told = self.snapshot.observed.evidence.told
        found = [prospect_of(pod, told.get(str(pod["metadata"]["name"])), self.now) for pod in self.unplaced]
        order = (Prospect.COMING, Prospect.NONE, Prospect.SILENT)
        return next((prospect for prospect in order if prospect in found), None)

    @property
    def green_lost_since(self) -> datetime | None:
        """When the last of green's pods stopped being ready, as far as they say."""
        changed = [parse_time(unready_since(pod)) for pod in self.green_pods]
        return max((at for at in changed if at is not None), default=self.progress.state_since)

    @property
    def blue_lost(self) -> bool:
        """Whether no pod of blue answers, and not just for a moment: then its places may be taken."""
        pods = [pod for pod in self.snapshot.pods.get(self.progress.blue or "", ()) if is_alive(pod)]
        changed = (parse_time(unready_since(pod)) for pod in pods)
        return self.blue_ready == 0 and all(at is None or self.since(at) >= LOST_SECONDS for at in changed)

    @property
    def crashed_pods(self) -> tuple[Manifest, ...]:
        """Of green, which had served and whose engine has ended since the switch: not while it loaded, and not because
        the node took the pod off. Kubelets write whole seconds."""
        pods = self.snapshot.pods.get(self.progress.green or "", ())
        switched = self.switched_at.replace(microsecond=0) if self.switched_at else self.now
        ended = ((p, parse_time(served_until(p))) for p in pods if is_alive(p) and not is_ready(p))
        return tuple(pod for pod, at in ended if at is not None and at >= switched)

    @property
    def waking_since(self) -> datetime | None:
        """When green's pods were made, where none of them has been ready yet, and blue's were not ready before either:
        both come up together, as from zero. Else None."""
        pods = self.snapshot.pods
        green = [pod for pod in pods.get(self.progress.green or "", ()) if is_alive(pod)]
        made = [parse_time(pod["metadata"].get("creationTimestamp")) for pod in green]
        ready = [parse_time(ready_since(pod)) for pod in pods.get(self.progress.blue or "", ())]
        begun = min((moment for moment in made if moment is not None), default=None)
        before = min((moment for moment in ready if moment is not None), default=None)
        together = begun is not None and before is not None and begun <= before
        return begun if together and not any(was_ready(pod) for pod in green) else None

    def ready_by_revision(self) -> Mapping[str, int]:
        """Ready pods of every revision that has some, sorted by hash."""
        return {hash_: count.ready for hash_, count in sorted(self.counts.items()) if hash_ and count.ready}

    @property
    def green_share(self) -> int:
        """Percent that green is to have at its canary step; all after the last."""
        return 100 if self.canary_weight is None else self.canary_weight

    @property
    def canary_weight(self) -> int | None:
        """Percent for green in the canary step that it is at; None when it is to have all."""
        canary, step = self.spec.rollout.canary, self.progress.step
        shared = self.progress.mode is Mode.SURGE and self.progress.state in WITH_REQUESTS
        if canary is None or step is None or not shared or step >= len(canary.steps):
            return None
        return canary.steps[step].weight
