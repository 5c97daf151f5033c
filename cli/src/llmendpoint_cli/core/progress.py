"""How far a rollout is, and its verdict: what `kubectl llm rollout status` says.

| first row that applies | verdict |
|---|---|
| the status is about an older spec | none yet |
| the revision that the spec asks for is rejected, or was rolled back | failed, with the reason that the operator wrote |
| a rollout is under way and not stalled | none yet |
| stalled | failed: it will not improve without a change |
| the active revision is what the spec asks for, Ready, and nothing is reconciling | done |
| otherwise | none yet |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .names import RESTING, ROLLED_BACK, STARTING, WAITING
from .objects import (
    Object,
    conditions_of,
    is_observed,
    is_true,
    name_of,
    reason_text,
    rejection_of,
    rollout_of,
    status_of,
    wanted_of,
)
from .tree import weights_of


class Verdict(StrEnum):
    """The verdict on a rollout as a whole."""

    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """`state`: the state machine's, or Pending before the operator has seen the spec. `line`: one sentence for people."""

    verdict: Verdict
    state: str
    line: str


def progress_of(endpoint: Object) -> Progress:
    """Apply the table above."""
    status, conditions = status_of(endpoint), conditions_of(endpoint)
    state = str(rollout_of(endpoint).get("state", "Idle"))
    if not is_observed(endpoint):
        return Progress(Verdict.RUNNING, "Pending", "the operator has not seen this spec yet")
    if failure := _rejected(endpoint):
        return Progress(Verdict.FAILED, state, failure)
    if is_true(conditions.get("Stalled")):
        return Progress(Verdict.FAILED, state, f"stalled: {reason_text(conditions['Stalled'])}")
    if state not in RESTING:
        return Progress(Verdict.RUNNING, state, _under_way(endpoint, state))
    active, target = status.get("activeRevision"), status.get("targetRevision")
    ready = conditions.get("Ready")
    if active and active == target and is_true(ready) and not is_true(conditions.get("Reconciling")):
        return Progress(Verdict.DONE, state, f"revision {active} serves: {reason_text(ready or {})}")
    made = _counts(endpoint, str(target)) if target else "the revision is not made yet"
    return Progress(Verdict.RUNNING, state, "; ".join(filter(None, (made, _cause(conditions)))))


def said(progress: Progress, seconds: float) -> str:
    """The line to print when the progress was first seen, `seconds` after the command began."""
    word = {Verdict.DONE: "done", Verdict.FAILED: "failed"}.get(progress.verdict, progress.state)
    return f"{seconds:6.1f} s  {word}: {progress.line}"


def _rejected(endpoint: Object) -> str:
    target, rejected = status_of(endpoint).get("targetRevision"), rejection_of(endpoint)
    if rejected and rejected.get("revision") == target:
        return f"revision {target} was rolled back: {reason_text(rejected)}{_serving(endpoint)}"
    rollout = rollout_of(endpoint)
    if rollout.get("state") == ROLLED_BACK and rollout.get("green") in (None, target):
        return f"revision {target} was rolled back: {rollout.get('message', 'no reason given')}{_serving(endpoint)}"
    return ""


def _serving(endpoint: Object) -> str:
    active = status_of(endpoint).get("activeRevision")
    return f"; revision {active} serves" if active else ""


def _under_way(endpoint: Object, state: str) -> str:
    """`new from old, 1/2 ready, 25 % of requests: what the operator says`, or why pods are not ready."""
    rollout = rollout_of(endpoint)
    green, blue = str(rollout.get("green", "?")), rollout.get("blue")
    weights = weights_of(endpoint)
    parts = [
        _counts(endpoint, green)
        + (f", {weights[green]} % of new requests" if green in weights and state != WAITING else "")
    ]
    if blue:
        parts.append(f"takes over from {blue}")
    if said := rollout.get("message"):
        parts.append(str(said))
    elif is_true(degraded := conditions_of(endpoint).get("Degraded")):
        parts.append(reason_text(degraded or {}))
    if state == WAITING:
        parts.append(f"verified; to continue: kubectl llm rollout promote {name_of(endpoint)}")
    return "; ".join(parts)


def _cause(conditions: Mapping[str, Object]) -> str:
    """`Reason: message` of the condition that names the cause; empty if nothing is wrong but that pods start."""
    degraded, ready = conditions.get("Degraded"), conditions.get("Ready")
    if degraded and is_true(degraded):
        return reason_text(degraded)
    named = ready and not is_true(ready) and ready.get("reason") != STARTING
    return reason_text(ready) if ready and named else ""


def _counts(endpoint: Object, revision: str) -> str:
    wanted = wanted_of(endpoint)
    found: Object = next(
        (r for r in status_of(endpoint).get("revisions") or () if r.get("name") == revision), {}
    )
    return f"revision {revision}: {found.get('readyReplicas', 0)} of {wanted} replicas ready"
