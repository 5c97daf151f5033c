"""What is to be found out about an endpoint now, read from its snapshot. Without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..api import LLMEndpointSpec
from ..api.verification import Prompt
from ..core.endpoint.allowed import BY_DEFAULT, Allowed
from ..core.endpoint.causes import is_alive, is_ready
from ..core.endpoint.snapshot import Snapshot
from ..core.names import Key
from ..core.rollout.analysis import find_limits
from ..core.rollout.evidence import Window
from ..core.rollout.machine import AT_REST, BEFORE_THE_SWITCH, WITH_REQUESTS, State
from ..core.rollout.records import find_window


@dataclass(frozen=True, slots=True)
class Target:
    """A running pod and the base URL of its engine."""

    name: str
    uid: str
    revision: str
    url: str
    ready: bool = True


@dataclass(frozen=True, slots=True)
class VerificationJob:
    """Prompts to be sent to `revision`, and to `blue` for comparison. It is another one when anything differs."""

    revision: str
    blue: str | None
    since: str
    model: str
    prompts: tuple[Prompt, ...]
    timeout_seconds: float
    gateway_url: str | None
    allowed: Allowed = BY_DEFAULT


@dataclass(frozen=True, slots=True)
class Wanted:
    """`epoch`: the assignment to be acknowledged. `window`: when it changes, figures are counted anew."""

    key: Key
    epoch: int = 0
    measured: tuple[str, ...] = ()
    window: Window | None = None
    decides: bool = False
    """Whether something is decided on figures now."""
    verification: VerificationJob | None = None
    pods: tuple[Target, ...] = ()

    @property
    def measured_pods(self) -> tuple[Target, ...]:
        """Those whose histograms are read."""
        return tuple(pod for pod in self.pods if pod.revision in self.measured)


def find_wanted(snapshot: Snapshot) -> Wanted | None:
    """None where no decision waits for anything."""
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
    measured = _measured(endpoint.spec, state, blue, green)
    job = _job(snapshot, rollout) if state == State.VERIFYING and green else None
    return Wanted(
        key=(endpoint.namespace, endpoint.name),
        epoch=int(traffic.get("epoch", 0)),
        measured=measured,
        window=find_window(rollout),
        decides=state in {State.AWAITING_PROMOTION, *WITH_REQUESTS},
        verification=job,
        pods=tuple(_targets(snapshot, (job.blue, job.revision) if job else measured)),
    )


def _measured(spec: LLMEndpointSpec, state: str, blue: str | None, green: str | None) -> tuple[str, ...]:
    """Whose figures a decision reads: before the switch blue's, where green is to be compared with it, then green's. A
    first revision is not judged."""
    if blue is None or green is None:
        return ()
    if state in BEFORE_THE_SWITCH:
        return (blue,) if find_limits(spec, spec.rollout.observe.duration).relative else ()
    return (green,) if state in WITH_REQUESTS else ()


def _shrinks(snapshot: Snapshot) -> bool:
    """Ready replicas have to go: which, is chosen by what the gateways have in flight on each."""
    active = snapshot.endpoint.status.get("activeRevision")
    return sum(map(is_ready, snapshot.pods.get(str(active), ()))) > snapshot.wanted


def _left_over(snapshot: Snapshot, about: set[str | None]) -> bool:
    """Pods of other revisions stay until every gateway has left them."""
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
    )


def active_targets(snapshot: Snapshot) -> list[Target]:
    """Ready pods of the active revision."""
    active = snapshot.endpoint.status.get("activeRevision")
    return [target for target in _targets(snapshot, (active,)) if target.ready]


def _targets(snapshot: Snapshot, revisions: tuple[str | None, ...]) -> Iterator[Target]:
    for hash_ in dict.fromkeys(revisions):
        revision = snapshot.revisions.get(hash_) if hash_ else None
        if hash_ is None or revision is None:
            continue
        for pod in snapshot.pods.get(hash_, ()):
            address = pod.get("status", {}).get("podIP")
            if address and is_alive(pod):
                metadata = pod["metadata"]
                url = base_url(address, revision.runtime.ports.http)
                yield Target(metadata["name"], metadata.get("uid", ""), hash_, url, is_ready(pod))


def base_url(address: str, port: int) -> str:
    """Of a pod; IPv6 addresses are written in brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
