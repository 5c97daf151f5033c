"""Answers to requests by annotation: `promote` and `abort` for a rollout, `undo` and `restart` for the
target.

A request is answered once, by its id. It names its revision, so that a late request affects no other one. No
request makes a revision run that the spec does not ask for: `kubectl llm rollout undo` therefore writes the
old spec back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...api import LLMEndpointSpec
from ..endpoint.snapshot import Request, Snapshot
from ..pods.agreement import agrees, current_hash
from ..pods.revision import revision_hash
from .machine import BEFORE_THE_SWITCH, WITH_REQUESTS, State
from .records import Override, Progress, Rejected
from .target import was_lost


@dataclass(frozen=True, slots=True)
class Answer:
    """`override`: the target that an accepted `undo` or `restart` sets; None leaves it unchanged."""

    request: Request
    accepted: bool
    message: str
    override: Override | None = None

    def as_json(self) -> dict[str, Any]:
        """The value of `status.request`."""
        outcome = "Accepted" if self.accepted else "Refused"
        action = self.request.action[:32]
        return {"id": self.request.id, "action": action, "outcome": outcome, "message": self.message[:2048]}


@dataclass(frozen=True, slots=True)
class _Case:
    """What an answer is made from. `current`: the present target."""

    snapshot: Snapshot
    spec: LLMEndpointSpec
    request: Request
    progress: Progress
    current: str
    active: str | None
    rejected: Rejected | None

    def accept(self, message: str, override: Override | None = None) -> Answer:
        return Answer(self.request, True, message, override)

    def refuse(self, message: str) -> Answer:
        return Answer(self.request, False, message)


def answer(
    snapshot: Snapshot,
    spec: LLMEndpointSpec,
    progress: Progress,
    current: str,
    active: str | None,
    rejected: Rejected | None,
) -> Answer | None:
    """The answer to a new request; None without a request, or if it was answered already."""
    request = snapshot.endpoint.request
    known = (snapshot.endpoint.status.get("request") or {}).get("id")
    if request is None or request.id == known:
        return None
    case = _Case(snapshot, spec, request, progress, current, active, rejected)
    if request.problem:
        return case.refuse(request.problem)
    rule = _ACTIONS.get(request.action)
    if rule is None:
        return case.refuse(f"{request.action!r} is not one of {', '.join(_ACTIONS)}")
    return rule(case)


def _promote(case: _Case) -> Answer:
    progress, asked = case.progress, case.request.revision
    if progress.state not in (State.AWAITING_PROMOTION, State.OBSERVING):
        return case.refuse(f"no revision waits for a promotion; the rollout is {progress.state}")
    if asked != progress.green:
        return case.refuse(f"revision {asked} does not wait for a promotion; {progress.green} does")
    if progress.state is State.OBSERVING:
        return case.accept(f"revision {asked} takes over without further observation")
    return case.accept(f"revision {asked} gets requests as soon as enough of its replicas are ready")


def _abort(case: _Case) -> Answer:
    progress, asked = case.progress, case.request.revision
    if progress.state not in BEFORE_THE_SWITCH | WITH_REQUESTS:
        hint = "; `kubectl llm rollout undo` goes back" if progress.state is not State.ROLLING_BACK else ""
        return case.refuse(f"there is nothing to abort; the rollout is {progress.state}{hint}")
    if asked != progress.green:
        return case.refuse(f"the rollout is about revision {progress.green}, not {asked}")
    if progress.blue is None and progress.state in WITH_REQUESTS:
        return case.refuse(f"revision {asked} is the first; there is none to go back to")
    return case.accept(f"revision {asked} is aborted")


def _undo(case: _Case) -> Answer:
    asked = case.request.revision
    if not asked:
        return case.refuse("undo needs the revision to go back to; see `kubectl llm rollout history`")
    revision = case.snapshot.revisions.get(asked)
    if revision is None:
        kept = ", ".join(sorted(case.snapshot.revisions)) or "none"
        return case.refuse(f"revision {asked} is not kept; kept are: {kept}")
    if case.rejected is not None and case.rejected.revision == asked:
        return case.refuse(
            f"revision {asked} was rejected: {case.rejected.message}; `restart` makes a new one"
        )
    if not agrees(case.spec, revision):
        # The API server checked that spec when it was written; policies may have been added since.
        hint = "`kubectl llm rollout undo` of this version writes that spec back"
        return case.refuse(f"revision {asked} was made from another spec than the present one; {hint}")
    if asked == case.current:
        return case.accept(f"back to revision {asked}, which the spec asks for")
    if was_lost(case.snapshot, case.active) and asked != case.active:
        return case.refuse("the request was made before the status was lost; ask again")
    message = f"back to revision {asked}, until the spec changes"
    return case.accept(message, Override(current_hash(case.spec, case.snapshot.revisions), asked))


def _restart(case: _Case) -> Answer:
    asked, salt = case.request.revision, case.request.id
    inputs = current_hash(case.spec, case.snapshot.revisions)
    made = revision_hash(case.spec, salt)
    if asked not in (None, case.current, made):
        return case.refuse(f"revision {asked} is not what the spec asks for now; {case.current} is")
    now = case.snapshot.revisions.get(case.current)
    if now is not None and case.current != inputs and not agrees(case.spec, now):
        held = f"an undo to revision {case.current} is in effect, while the spec asks for {inputs}"
        return case.refuse(f"{held}; change the spec first")
    if was_lost(case.snapshot, case.active) and made not in case.snapshot.records:
        return case.refuse("the request was made before the status was lost; ask again")
    return case.accept(f"revision {made} starts from the same spec", Override(inputs, made, salt))


_ACTIONS: Mapping[str, Callable[[_Case], Answer]] = {
    "promote": _promote, "abort": _abort, "undo": _undo, "restart": _restart,
}  # fmt: skip
