"""Requests to the operator: what to write, whether it makes sense now, and the answer.

A request names its revision, so that a late request does not affect another one. This program refuses what is clearly
pointless. The operator decides everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import NotFound, Refused
from .history import Entry, find_entry
from .names import IDLE, OBSERVING, REQUEST_ANNOTATION, RESTING, ROLLING_BACK, WAITING
from .objects import Object, full_name, is_observed, name_of, rejection_of, rollout_of, status_of


class Action(StrEnum):
    """The actions that can be requested."""

    PROMOTE = "promote"
    ABORT = "abort"
    UNDO = "undo"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as the annotation holds it."""

    id: str
    action: Action
    revision: str

    def as_annotation(self) -> str:
        """The request as JSON text."""
        return json.dumps({"id": self.id, "action": self.action.value, "revision": self.revision})

    @property
    def left(self) -> str:
        """What remains after a refusal or a withdrawal, as the end of a sentence."""
        if self.action is not Action.UNDO:
            return ""
        return (
            f"; the spec is already that of revision {self.revision}: change it again if you do not want that"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The operator's answer."""

    accepted: bool
    message: str


def promoted_revision(endpoint: Object) -> str:
    """The revision that waits for promotion or is observed. Raises Refused."""
    rollout = rollout_of(endpoint)
    state = rollout.get("state", IDLE)
    if state not in (WAITING, OBSERVING):
        raise Refused(f"{full_name(endpoint)}: there is no revision to promote; {_doing(endpoint)}")
    return str(rollout["green"])


def aborted_revision(endpoint: Object) -> str:
    """The new revision of the rollout that is under way. Raises Refused without one."""
    rollout = rollout_of(endpoint)
    state = rollout.get("state", IDLE)
    if state in RESTING or state == ROLLING_BACK:
        raise Refused(f"{full_name(endpoint)}: there is no rollout to abort; {_doing(endpoint)}")
    return str(rollout["green"])


def undone_to(endpoint: Object, entries: Iterable[Entry], wanted: str | None) -> str:
    """The revision to go back to: the one that `wanted` names by hash or number. Without `wanted`: the active revision
    if the spec asks for another one, else the last revision before it. Raises NotFound, or Refused."""
    kept, status = tuple(entries), status_of(endpoint)
    active, target = status.get("activeRevision"), status.get("targetRevision")
    if wanted is not None:
        found = find_entry(kept, wanted)
        if found is None:
            known = ", ".join(f"{e.number} ({e.revision})" for e in kept) or "none"
            raise NotFound(f"{full_name(endpoint)} has no revision {wanted}; it keeps {known}")
        if found.revision == target:
            raise Refused(f"{full_name(endpoint)}: the spec already asks for revision {found.revision}")
        if found.revision == rejection_of(endpoint).get("revision"):
            raise Refused(f"{full_name(endpoint)}: revision {found.revision} was rejected")
        return found.revision
    if not is_observed(endpoint):
        raise Refused(
            f"{full_name(endpoint)}: the operator has not seen the latest change of the spec yet; try again, or "
            "name the revision with --to-revision"
        )
    if active and active != target:
        return str(active)
    before = [e for e in kept if e.revision not in (target, rejection_of(endpoint).get("revision"))]
    if not before:
        raise Refused(
            f"{full_name(endpoint)}: no earlier revision is kept; see kubectl llm rollout history {name_of(endpoint)}"
        )
    return max(before, key=lambda e: e.number).revision


def restarted_revision(endpoint: Object) -> str:
    """The revision that the spec asks for, even if it was rejected. Raises Refused if there is none yet."""
    target = status_of(endpoint).get("targetRevision")
    if not target:
        raise Refused(f"{full_name(endpoint)}: there is no revision to restart; {_doing(endpoint)}")
    return str(target)


def patch_for(endpoint: Object, request: Request, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A merge patch that writes the request and the changes of the spec, if nothing changed since `endpoint` was read.
    Raises Refused while an earlier request waits for its answer, because that request would be lost."""
    waiting = pending(endpoint)
    if waiting is not None:
        raise Refused(
            f"{full_name(endpoint)}: the operator has not answered an earlier request yet "
            f"({waiting.get('action', '?')}); check that it runs: kubectl get leases -A | grep llmendpoint-operator"
        )
    metadata = {
        "resourceVersion": endpoint["metadata"]["resourceVersion"],
        "annotations": {REQUEST_ANNOTATION: request.as_annotation()},
    }
    return {"metadata": metadata, **({"spec": dict(spec)} if spec else {})}


def pending(endpoint: Object) -> Object | None:
    """The request that has no answer yet; None if there is none, or if it cannot be read."""
    text = (endpoint["metadata"].get("annotations") or {}).get(REQUEST_ANNOTATION)
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or "id" not in found:
        return None
    return None if found["id"] == (status_of(endpoint).get("request") or {}).get("id") else found


def answer_to(endpoint: Object, request: Request) -> Answer | None:
    """The operator's answer; None before there is one. Raises Refused if a later request replaced this one before it
    was answered."""
    answer = status_of(endpoint).get("request") or {}
    if answer.get("id") == request.id:
        return Answer(answer.get("outcome") == "Accepted", str(answer.get("message", "")))
    waiting = pending(endpoint)
    if waiting is not None and waiting["id"] != request.id:
        raise Refused(
            f"{full_name(endpoint)}: another request ({waiting.get('action', '?')}) replaced this one before it was answered"
        )
    return None


def _doing(endpoint: Object) -> str:
    """The state, as the end of a refusal."""
    rollout, active = rollout_of(endpoint), status_of(endpoint).get("activeRevision")
    state = rollout.get("state", IDLE)
    serves = f"revision {active} serves" if active else "no revision serves yet"
    if state == IDLE:
        return f"no rollout is under way, and {serves}"
    return f"the rollout of {rollout.get('green', '?')} is in state {state}, and {serves}"
