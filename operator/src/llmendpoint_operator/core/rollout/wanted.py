"""What the observers need to find out about an endpoint now, derived from its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...api.verification import Prompt
from ..endpoint.allowed import BY_DEFAULT, Allowed
from ..endpoint.snapshot import Snapshot
from ..names import Key
from ..pods.state import is_ready
from .account import Account, parse_account
from .evidence import Window
from .machine import AT_REST, BEFORE_THE_SWITCH, WITH_REQUESTS, State
from .records import find_window
from .verification import rate_of_each


@dataclass(frozen=True, slots=True)
class VerificationJob:
    """Prompts to send to `revision`, and to `blue` for comparison. A job that differs in any field is a new
    one."""

    revision: str
    blue: str | None
    since: str
    model: str
    prompts: tuple[Prompt, ...]
    timeout_seconds: float
    gateway_url: str | None
    allowed: Allowed = BY_DEFAULT
    false_rejection_rate: float = 0.0
    """How often the test of one prompt may reject a revision that answers like blue (0..1)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """`epoch`: the assignment that gateways must acknowledge. `measured`: revisions whose figures are needed.
    `window`: figures are counted anew when it changes."""

    key: Key
    epoch: int = 0
    measured: tuple[str, ...] = ()
    window: Window | None = None
    carried: Account | None = None
    """What an operator before this one has counted in the window."""
    decides: bool = False
    """Whether a decision depends on figures now."""
    verification: VerificationJob | None = None

    @property
    def asked(self) -> tuple[str | None, ...]:
        """The revisions whose pods are asked."""
        job = self.verification
        return (job.blue, job.revision) if job is not None else self.measured


def find_wanted(snapshot: Snapshot) -> Wanted | None:
    """What is needed; None if no decision waits for an observation."""
    endpoint = snapshot.endpoint
    rollout: Mapping[str, Any] = endpoint.status.get("rollout") or {}
    traffic: Mapping[str, Any] = endpoint.status.get("traffic") or {}
    state = rollout.get("state", State.IDLE)
    if endpoint.deleting or endpoint.spec is None:
        return None
    blue, green = rollout.get("blue"), rollout.get("green")
    settled = not (traffic.get("draining") or _shrinks(snapshot) or _left_over(snapshot, {blue, green}))
    if state in AT_REST and settled:
        return None
    return Wanted(
        key=(endpoint.namespace, endpoint.name),
        epoch=int(traffic.get("epoch", 0)),
        measured=_measured(state, blue, green, traffic),
        window=find_window(rollout),
        carried=parse_account(rollout.get("observation")),
        decides=state in {State.AWAITING_PROMOTION, *WITH_REQUESTS},
        verification=_job(snapshot, rollout) if state == State.VERIFYING and green else None,
    )


def _measured(state: str, blue: str | None, green: str | None, traffic: Mapping[str, Any]) -> tuple[str, ...]:
    """The revisions whose figures a decision reads: before the switch blue's, with which green is compared; after it green's,
    and blue's as long as it gets requests. A first revision is not judged."""
    if blue is None or green is None:
        return ()
    if state in BEFORE_THE_SWITCH:
        return (blue,)
    if state not in WITH_REQUESTS:
        return ()
    served = {one.get("revision") for one in traffic.get("weights", ()) if one.get("weight")}
    return (green, blue) if blue in served else (green,)


def _shrinks(snapshot: Snapshot) -> bool:
    """Whether ready replicas must go. The gateways' requests in flight decide which."""
    active = snapshot.endpoint.status.get("activeRevision")
    return sum(map(is_ready, snapshot.pods.get(str(active), ()))) > snapshot.wanted


def _left_over(snapshot: Snapshot, about: set[str | None]) -> bool:
    """Whether other revisions still have pods. Those stay until no gateway sends to them."""
    others = (d for hash_, d in snapshot.deployments.items() if hash_ not in about)
    return any(int(deployment.get("spec", {}).get("replicas", 1)) > 0 for deployment in others)


def _job(snapshot: Snapshot, rollout: Mapping[str, Any]) -> VerificationJob:
    endpoint = snapshot.endpoint
    assert endpoint.spec is not None
    verification = endpoint.spec.rollout.verification
    return VerificationJob(
        revision=str(rollout["green"]),
        blue=rollout.get("blue"),
        since=str(rollout.get("stateSince")),
        model=f"{endpoint.namespace}/{endpoint.name}",
        prompts=verification.prompts,
        timeout_seconds=verification.timeout_seconds,
        gateway_url=snapshot.gateway_url,
        allowed=snapshot.allowed,
        false_rejection_rate=rate_of_each(
            verification.prompts, endpoint.spec.rollout.observe.false_rollback_rate
        ),
    )
