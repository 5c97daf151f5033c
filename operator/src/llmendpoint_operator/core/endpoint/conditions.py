"""The endpoint's conditions. Each type has an ordered list of rules; the first rule that returns a condition
wins.

| type | True | read by |
|---|---|---|
| Ready | requests are answered, or the endpoint is scaled to zero on purpose | people, tools |
| Progressing | a revision or replicas are starting | people |
| Degraded | something is wrong; reason and message name the cause | people, alerts |
| Scaling | the scaler follows its signals (only present with autoscaling) | people |
| ScalingBlind | the scaler does not know the load (only present with autoscaling) | people, alerts |
| NotOwned | an object with a child's name does not belong to the endpoint (only present when True) | people, alerts |
| NameConflict | another endpoint has a model name that this one claims (only present when True) | people |
| RuntimeMissing | the spec's LLMRuntime does not exist; existing revisions go on (only present when True) | people, alerts |
| CircuitOpen | gateways refuse requests because too many failed (only present when True) | people, alerts |
| VerdictLate | at the present traffic the verdict on a new revision comes after maxDuration (only present when True) | people |
| Reconciling | work is in progress (only present when True) | kstatus: Flux, Argo CD, kubectl wait |
| Stalled | it does not get better without a change (only present when True) | kstatus |
| AdaptersReady | every ready replica has every adapter (only present with adapters) | people |
| CapacityFits | the model fits the accelerators (see capacity/outlook.py; only present when the spec asks for some) | people |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...api import RolloutState as State
from ..adapters.reported import CONDITION as ADAPTERS_READY
from ..adapters.reported import Verdict
from ..scaling.circuit import CONDITION as CIRCUIT_OPEN
from ..scaling.outcome import Outlook
from ..sentences import fitting
from .causes import Cause

STATES: Mapping[State, tuple[str, str]] = {
    State.VERIFYING: (
        "Verifying",
        "the operator sends the prompts of spec.rollout.verification to revision {green}",
    ),
    State.AWAITING_PROMOTION: (
        "AwaitingPromotion",
        "revision {green} is verified; with promotion: Manual it gets requests after `kubectl llm rollout promote`, with "
        "promotion: Auto as soon as the old revision has been measured for comparison",
    ),
    State.SWITCHING: ("Switching", "the gateways switch to revision {green}"),
    State.OBSERVING: (
        "Observing",
        "revision {green} gets requests and is observed; it may still be rolled back",
    ),
    State.DRAINING: ("Draining", "the revision before {green} finishes its last requests"),
    State.ROLLING_BACK: ("RollingBack", "the old revision gets all requests back"),
}
"""Reason and message of rollout states. States that wait for pods have no entry: their message has counts."""


@dataclass(frozen=True, slots=True)
class View:
    """The facts that conditions are made from."""

    wanted: int
    active: str | None
    target: str | None
    active_ready: int
    target_ready: int
    cause: Cause | None
    deadline_exceeded: bool = False
    state: State = State.IDLE
    message: str = ""
    """What the rollout waits for, if that is unusual."""
    observed: str = ""
    """How far the verdict on the new revision is; empty while nothing is observed."""
    late: str = ""
    """What to change because the verdict would come after maxDuration; empty otherwise."""
    scaled: bool = False
    """Whether a scaler sets the number of replicas."""
    circuit: str = ""
    """Which gateways refuse requests because too many fail; empty if none does."""
    foreign: str = ""
    """Objects with the names of children that do not belong to the endpoint."""
    conflict: str = ""
    """Which claimed model names belong to other endpoints."""
    runtime_gone: str = ""
    """Why the spec's LLMRuntime does not exist; empty if it exists."""
    outlook: Outlook | None = None
    """The state of the scaler; None without one, or while it is unknown."""
    adapters: Verdict | None = None
    """Whether the replicas have their adapters; None without adapters."""

    @property
    def rolling(self) -> bool:
        """Whether a rollout is in progress, or replicas of the target are not ready yet."""
        done = self.state in (State.IDLE, State.ROLLED_BACK)
        return (
            not done or self.target is None or self.target != self.active or self.target_ready < self.wanted
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times; status.py adds them."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    def as_json(self, generation: int, transition: str) -> dict[str, Any]:
        """The condition in the form of metav1.Condition."""
        return {
            "type": self.type,
            "status": self.status,
            "observedGeneration": generation,
            "lastTransitionTime": transition,
            "reason": self.reason,
            "message": fitting(self.message),
        }


def ready_serving(view: View) -> Condition | None:
    """The active revision has ready pods."""
    if view.active_ready == 0:
        return None
    if view.active_ready >= view.wanted:
        return Condition("Ready", "True", "AllReplicasReady", f"revision {view.active} answers requests")
    return Condition(
        "Ready", "True", "SomeReplicasReady", f"{view.active_ready} of {view.wanted} replicas answer requests"
    )


def ready_at_zero(view: View) -> Condition | None:
    """The spec wants no pods."""
    if view.wanted > 0 or view.active is None:
        return None
    if view.scaled:
        said = "the endpoint gets no requests; the next request waits in the gateway until a replica has loaded the model"
        return Condition("Ready", "True", "ScaledToZero", said)
    return Condition("Ready", "True", "ScaledToZero", "spec.replicas is 0; raise it to serve requests")


def ready_failing(view: View) -> Condition | None:
    """No replica answers, and the cause is known."""
    return Condition("Ready", "False", view.cause.reason, view.cause.message) if view.cause else None


def ready_starting(view: View) -> Condition | None:
    """No replica answers yet."""
    return Condition("Ready", "False", "Starting", "no replica has loaded the model and warmed up yet")


def progressing_stalled(view: View) -> Condition | None:
    """No progress is expected."""
    stalled = stalled_now(view)
    return Condition("Progressing", "False", stalled.reason, stalled.message) if stalled else None


def progressing_rolling(view: View) -> Condition | None:
    """A new revision, or further replicas of the active one, are starting."""
    if not view.rolling:
        return None
    if view.cause is not None and view.cause.expected:
        return Condition("Progressing", "True", view.cause.reason, view.cause.message)
    if view.state in STATES:
        reason, message = STATES[view.state]
        observed = f": {view.observed}" if view.observed else ""
        said = view.message or message.format(green=view.target) + observed
        return Condition("Progressing", "True", reason, said)
    if view.target is None:
        waits = f": {view.cause.message}" if view.cause else ""
        return Condition("Progressing", "True", "NewRevision", f"the new revision is not made yet{waits}")
    reason = "ScalingUp" if view.target == view.active else "NewRevision"
    return Condition(
        "Progressing",
        "True",
        reason,
        f"revision {view.target}: {view.target_ready} of {view.wanted} replicas are ready",
    )


def progressing_done(view: View) -> Condition | None:
    """The cluster matches the spec."""
    return Condition("Progressing", "False", "Complete", f"revision {view.active} is what the spec asks for")


def degraded_cause(view: View) -> Condition | None:
    """Something is wrong."""
    if view.cause is not None and not view.cause.expected:
        return Condition("Degraded", "True", view.cause.reason, view.cause.message)
    return (
        Condition("Degraded", "True", _DEADLINE.reason, _DEADLINE.message)
        if view.deadline_exceeded and view.rolling and view.cause is None
        else None
    )


def degraded_not(view: View) -> Condition | None:
    """Nothing is wrong."""
    return Condition("Degraded", "False", "AsExpected", "")


def reconciling_now(view: View) -> Condition | None:
    """Work is in progress and may still succeed."""
    if stalled_now(view) or not view.rolling:
        return None
    going_on = progressing_rolling(view)
    return Condition("Reconciling", "True", "Progressing", going_on.message if going_on else "")


def stalled_now(view: View) -> Condition | None:
    """A permanent cause, or an exceeded deadline. An expected cause never stalls."""
    if view.cause is not None and view.cause.expected:
        return None
    if view.cause is not None and (view.cause.permanent or view.deadline_exceeded):
        return Condition("Stalled", "True", view.cause.reason, view.cause.message)
    if view.deadline_exceeded and view.rolling:
        return Condition("Stalled", "True", _DEADLINE.reason, _DEADLINE.message)
    return None


_DEADLINE = Cause(
    "ProgressDeadlineExceeded",
    "no replica became ready within spec.progressDeadlineSeconds; see the pods' logs",
)


def scaling_now(view: View) -> Condition | None:
    """What the scaler follows, or why it follows nothing."""
    outlook = view.outlook
    if outlook is None:
        return None
    return Condition("Scaling", "True" if outlook.follows else "False", outlook.reason, outlook.message)


def scaling_blind(view: View) -> Condition | None:
    """Whether the scaler knows the load not at all, or only in part."""
    outlook = view.outlook
    if outlook is None:
        return None
    if outlook.blind and not outlook.partly:
        return Condition("ScalingBlind", "True", "NoFigures", outlook.blind)
    reason = "SomeFigures" if outlook.blind else "AsExpected"
    return Condition("ScalingBlind", "False", reason, outlook.blind)


def adapters_ready(view: View) -> Condition | None:
    """Whether the replicas have their adapters. It changes no other condition: an adapter that fails harms no endpoint."""
    found = view.adapters
    return Condition(ADAPTERS_READY, found.status, found.reason, found.message) if found else None


def circuit_open(view: View) -> Condition | None:
    """Gateways refuse requests."""
    return Condition(CIRCUIT_OPEN, "True", "RequestsFail", view.circuit) if view.circuit else None


def verdict_late(view: View) -> Condition | None:
    """The traffic is too little for a verdict in time."""
    return Condition("VerdictLate", "True", "TooLittleTraffic", view.late) if view.late else None


def not_owned(view: View) -> Condition | None:
    """An object with a child's name does not belong to the endpoint."""
    return Condition("NotOwned", "True", "NameTaken", view.foreign) if view.foreign else None


def name_conflict(view: View) -> Condition | None:
    """Another endpoint has a model name that this one claims."""
    return Condition("NameConflict", "True", "NameTaken", view.conflict) if view.conflict else None


def runtime_missing(view: View) -> Condition | None:
    """The LLMRuntime does not exist, so no new revision can be made."""
    if not view.runtime_gone:
        return None
    said = f"{view.runtime_gone}; existing revisions keep running, but no new one can be made"
    return Condition("RuntimeMissing", "True", "RuntimeNotFound", said)


Rule = Callable[[View], Condition | None]
RULES: tuple[tuple[Rule, ...], ...] = (
    (ready_serving, ready_at_zero, ready_failing, ready_starting),
    (progressing_stalled, progressing_rolling, progressing_done),
    (degraded_cause, degraded_not),
    (scaling_now,),
    (scaling_blind,),
    (adapters_ready,),
    (circuit_open,),
    (verdict_late,),
    (not_owned,),
    (name_conflict,),
    (runtime_missing,),
    (reconciling_now,),
    (stalled_now,),
)


def make_conditions(view: View) -> tuple[Condition, ...]:
    """At most one condition of each type."""
    found = (next(filter(None, (rule(view) for rule in rules)), None) for rules in RULES)
    return tuple(condition for condition in found if condition is not None)
