"""Decides when each event of the state machine has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...api import Mode
from ..endpoint.causes import engine_exited, find_cause, unschedulable
from .evidence import ACKNOWLEDGE_SECONDS, Outcome
from .machine import AT_REST, BEFORE_THE_SWITCH, WITH_REQUESTS, Event, State
from .observation import Answer, measuring_blue, observing
from .places import asks_for_places, held, unschedulable_since
from .prospects import Prospect
from .situation import Situation
from .waiting import deadline_in, lost_in


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event has happened. `reason` and `message` say why, for conditions and Events."""

    reason: str = ""
    message: str = ""


YES = Occurrence()


def new_target(s: Situation) -> Occurrence | None:
    """At rest and while rolling back, every revision but blue is new; otherwise every one but blue and green.
    A rejected revision is not new. If only green answers requests, blue is new too."""
    rejected = s.rejected is not None and s.rejected.revision == s.target
    back = s.target == s.progress.blue and not s.green_answers_alone
    if s.target is None or back or rejected:
        return None
    at_rest = s.progress.state in AT_REST or s.progress.state is State.ROLLING_BACK
    return YES if at_rest or s.target != s.progress.green else None


def reverted(s: Situation) -> Occurrence | None:
    """The spec asks for blue again or, before green has requests, for a revision that cannot be made. Does
    not happen while only green could answer requests."""
    if s.green_answers_alone:
        return None
    if s.target is None:
        return YES if s.progress.state in BEFORE_THE_SWITCH else None
    return YES if s.target == s.progress.blue else None


def aborted(s: Situation) -> Occurrence | None:
    """An abort request was accepted."""
    if s.accepted is None or not s.asked_to("abort"):
        return None
    return Occurrence("Aborted", f"aborted by request {s.accepted.id}")


def overdue(s: Situation) -> Occurrence | None:
    """Happens only if there is a blue to go back to; a first revision has no deadline. After the switch only
    an exchange in place still has one."""
    progress, deadline = s.progress, s.spec.progress_deadline_seconds
    exchanging = progress.state in BEFORE_THE_SWITCH or progress.mode is Mode.IN_PLACE
    if progress.blue is None or not exchanging or held(s) or deadline_in(s) > 0:
        return None
    if progress.state is State.VERIFYING:
        found = s.verification
        said = f"not verified within {deadline} s (spec.progressDeadlineSeconds)"
        return Occurrence(
            "ProgressDeadlineExceeded", f"{said}: {found.message}" if found and found.message else said
        )
    said = f"{s.green_ready} of {s.green_needed} replicas were ready after {deadline} s (spec.progressDeadlineSeconds)"
    if progress.state is State.SWITCHING and s.laggards:
        said += f"; gateways that still send to old replicas: {', '.join(s.laggards)}"
    cause = find_cause(s.snapshot.deployments.get(progress.green or ""), _green_pods(s))
    return Occurrence("ProgressDeadlineExceeded", f"{said}: {cause.message}" if cause else said)


def no_room(s: Situation) -> Occurrence | None:
    """With capacity Auto, green takes the places of old pods if its own find no node and none will come. Also
    happens if the spec was edited to ask for those places."""
    if asks_for_places(s):
        return Occurrence("NoRoom", "spec.rollout asks for the places of the old pods now")
    since, prospect = unschedulable_since(s), s.prospect
    if since is None or prospect in (None, Prospect.COMING):
        return None
    if prospect is Prospect.SILENT and s.remaining(since, s.spec.rollout.unschedulable_seconds) > 0:
        return None
    causes = (unschedulable(pod) for pod in s.unplaced)
    cause = next((cause for cause in causes if cause is not None), None)
    return Occurrence("NoRoom", cause.message if cause else "a new replica finds no node")


def scheduled(s: Situation) -> Occurrence | None:
    """Enough of green's pods have nodes."""
    return YES if s.green_scheduled else None


def warm(s: Situation) -> Occurrence | None:
    """Enough of green's pods are ready, and have their adapters if those come soon."""
    return YES if s.green_ready >= s.green_needed and s.adapters_awaited == 0 else None


def cold(s: Situation) -> Occurrence | None:
    """Too few of green's pods are still ready."""
    return YES if s.green_ready < s.green_needed else None


def verified(s: Situation) -> Occurrence | None:
    """Without prompts the warm-up is the verification. At zero without verifyAtZero no pod can be asked."""
    if s.progress.verified or not s.spec.rollout.verification.prompts or s.green_wanted == 0:
        return YES
    found = s.verification
    return YES if found is not None and found.outcome is Outcome.PASSED else None


def unverified(s: Situation) -> Occurrence | None:
    """A prompt was not answered as expected."""
    found = s.verification
    if s.progress.verified or found is None or found.outcome is not Outcome.FAILED:
        return None
    return Occurrence("VerificationFailed", found.message)


def promoted(s: Situation) -> Occurrence | None:
    """Without a blue nothing is compared. In mode Recreate no promotion is awaited, because no replica
    answers until then. (The spec refuses Recreate with promotion: Manual, but the rollout may have begun
    before the edit.)"""
    if s.progress.blue is None or s.progress.promoted or s.asked_to("promote"):
        return YES
    by_itself = s.spec.rollout.promotion == "Auto" or s.progress.mode is Mode.RECREATE
    return YES if by_itself and measuring_blue(s) == 0 else None


def wave_ready(s: Situation) -> Occurrence | None:
    """InPlace: the new pods of this wave are ready, and another wave follows."""
    progress = s.progress
    if progress.mode is not Mode.IN_PLACE or (progress.step or 0) >= s.wanted:
        return None
    return YES if s.green_ready >= (progress.step or 0) else None


def acknowledged(s: Situation) -> Occurrence | None:
    """All gateways acknowledged, or ACKNOWLEDGE_SECONDS have passed. In place the exchange must be complete.
    At zero replicas nothing is awaited, because gateways follow only to routable replicas."""
    if s.progress.mode is Mode.IN_PLACE and (s.green_ready < s.wanted or s.live(s.progress.blue) > 0):
        return None
    if s.acknowledged or s.wanted == 0:
        return YES
    if s.remaining(s.progress.state_since, ACKNOWLEDGE_SECONDS) > 0:
        return None
    late = ", ".join(s.laggards or ()) or "no gateway could be asked"
    return Occurrence(
        "GatewaysLate", f"not acknowledged within {ACKNOWLEDGE_SECONDS} s by all gateways: {late}"
    )


def breached(s: Situation) -> Occurrence | None:
    """Crashes are checked first, because they need no figures."""
    crash = _crashed(s)
    if crash is not None or s.progress.state is not State.OBSERVING:
        return crash
    found = observing(s)
    return Occurrence(found.reason, found.message) if found.answer is Answer.BAD else None


def step_passed(s: Situation) -> Occurrence | None:
    """The observation of a canary step was good. After a manual promotion there are no more steps."""
    return _passed(s) if s.canary_weight is not None and not s.asked_to("promote") else None


def step_changed(s: Situation) -> Occurrence | None:
    """The observation was made at another weight: of the canary's step, or beside `observe.control`. Older statuses
    recorded no weight; then nothing happens."""
    before, share = s.progress.weight, s.green_share
    if before is None or before == share or s.asked_to("promote"):
        return None
    return Occurrence(
        "ShareChanged",
        f"{share} % of the requests now, {before} % before the spec was edited",
    )


def confirmed(s: Situation) -> Occurrence | None:
    """The observation at full traffic was good, or a promote request was accepted at any step."""
    if s.accepted is not None and s.asked_to("promote"):
        return Occurrence("Promoted", f"promoted by request {s.accepted.id}")
    return _passed(s) if s.canary_weight is None else None


def drained(s: Situation) -> Occurrence | None:
    """Blue has no pods left, or its last requests have had their time and every gateway has left it."""
    gone = s.live(s.progress.blue) == 0 and not s.others()
    return YES if gone or not s.keeps_old_pods else None


def restored(s: Situation) -> Occurrence | None:
    """Blue has all requests again. In the modes that stopped its pods, all of them are ready again."""
    blue = s.progress.blue
    if blue is None:
        return YES
    if s.progress.mode is not Mode.SURGE and s.blue_ready < s.wanted:
        return None
    if s.weight(blue) < 100:
        return None
    waited = s.remaining(s.progress.state_since, ACKNOWLEDGE_SECONDS) == 0
    return YES if s.acknowledged or waited else None


OCCURRED: Mapping[Event, Callable[[Situation], Occurrence | None]] = {
    Event.NEW_TARGET: new_target,
    Event.REVERTED: reverted,
    Event.ABORTED: aborted,
    Event.OVERDUE: overdue,
    Event.NO_ROOM: no_room,
    Event.SCHEDULED: scheduled,
    Event.WARM: warm,
    Event.COLD: cold,
    Event.VERIFIED: verified,
    Event.UNVERIFIED: unverified,
    Event.PROMOTED: promoted,
    Event.WAVE_READY: wave_ready,
    Event.ACKNOWLEDGED: acknowledged,
    Event.BREACHED: breached,
    Event.STEP_PASSED: step_passed,
    Event.STEP_CHANGED: step_changed,
    Event.CONFIRMED: confirmed,
    Event.DRAINED: drained,
    Event.RESTORED: restored,
}


def _passed(s: Situation) -> Occurrence | None:
    found = observing(s)
    return Occurrence(found.reason, found.message) if found.answer is Answer.GOOD else None


def _green_pods(s: Situation) -> tuple[dict[str, object], ...]:
    return s.snapshot.pods.get(s.progress.green or "", ())


def _crashed(s: Situation) -> Occurrence | None:
    """The engine of a pod that had been ready has ended; or no pod of green is ready while blue's are, unless
    both are just starting. If blue has no ready pods, only an ended engine counts."""
    green = s.progress.green
    if s.lost_while_draining and lost_in(s) == 0:
        return Occurrence("RevisionNotReady", f"no replica of revision {green} was ready any more")
    if s.wanted == 0 or s.progress.blue is None or s.progress.state not in WITH_REQUESTS:
        return None
    exits = (engine_exited(pod) for pod in s.crashed_pods)
    cause = next((cause for cause in exits if cause is not None), None)
    served = s.progress.mode is not Mode.IN_PLACE or s.progress.state is State.OBSERVING
    if cause is not None and served:
        return Occurrence(
            "RevisionCrashed", f"revision {green} crashed after it got requests: {cause.message}"
        )
    if lost_in(s) == 0:
        return Occurrence(
            "RevisionNotReady", f"no replica of revision {green} was ready any more after the switch"
        )
    return None
