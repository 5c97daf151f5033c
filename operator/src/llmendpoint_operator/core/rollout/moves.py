"""What a move changes: the rollout's record, and the rejected revision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ...api import Mode
from ..endpoint.steps import Event as KubernetesEvent
from ..times import time_text
from .machine import MOVES, WITH_REQUESTS, Event, State
from .observation import account, newer_baseline
from .occurrences import Occurrence
from .places import first_mode
from .records import Progress, Rejected, cut
from .situation import Situation

REJECTING = frozenset({Event.ABORTED, Event.OVERDUE, Event.UNVERIFIED, Event.BREACHED})


def move(s: Situation, event: Event, why: Occurrence) -> tuple[Progress, Rejected | None]:
    """The record after `event`, which must be in the state's row of MOVES."""
    state = MOVES[s.progress.state][event]
    if state is State.IDLE:
        return _at_rest(s), s.rejected
    if state is State.PROVISIONING and event is not Event.NO_ROOM:
        return _begin(s), None
    rejecting = event in REJECTING
    rejected = _reject(s, why) if rejecting else s.rejected
    told = account(s, final=True) if rejecting else s.progress.account if event is Event.RESTORED else None
    progress = replace(
        s.progress, state=state, state_since=cut(s.now), account=told, message=why.message or None
    )
    return _CHANGES.get(event, lambda _, found: found)(s, progress), rejected


def narrate(s: Situation, event: Event, why: Occurrence) -> KubernetesEvent | None:
    """The Event for a move; None if it would tell nothing new."""
    green, blue = s.progress.green, s.progress.blue or "none"
    back = f"{blue} gets all requests" if s.progress.blue else "nothing gets requests"
    told = {
        Event.NEW_TARGET: ("RolloutStarted", f"from revision {_next_blue(s) or 'none'} to {s.target}"),
        Event.REVERTED: ("RolloutReverted", f"revision {green} is not wanted by the spec any more; {back}"),
        Event.NO_ROOM: ("NoRoomBeside", f"revision {green} takes the place of {blue}: {why.message}"),
        Event.VERIFIED: ("RevisionVerified", f"revision {green} loaded, generated and answered as expected"),
        Event.STEP_PASSED: ("CanaryStepPassed", f"revision {green} at {s.canary_weight} %: {why.message}"),
        Event.STEP_CHANGED: ("ShareChanged", f"revision {green}: {why.message}"),
        Event.CONFIRMED: ("RevisionConfirmed", f"revision {green}: {why.message}"),
    }  # fmt: skip
    if s.progress.state is State.DRAINING and event is Event.REVERTED:
        event = Event.NEW_TARGET
    if event in REJECTING:
        return KubernetesEvent("RevisionRejected", f"revision {green}: {why.message}; {back}", "Warning")
    if event is Event.ACKNOWLEDGED and why.message:
        return KubernetesEvent("GatewaysLate", why.message, "Warning")
    if event is Event.VERIFIED and s.progress.verified:
        return None
    if event is Event.NO_ROOM and s.spec.rollout.canary is not None:
        reason, message = told[event]
        return KubernetesEvent(reason, f"{message}; rollout.canary.steps are left out", "Warning")
    return KubernetesEvent(*told[event]) if event in told else None


def wave(s: Situation) -> int:
    """Pods exchanged together: a quarter of the wanted ones, at least one, and otherwise no more than
    minAvailable permits."""
    spare = s.wanted - s.minimum
    return max(1, min(s.wanted // 4, spare))


def _begin(s: Situation) -> Progress:
    """The record of a new rollout to the target."""
    blue = _next_blue(s)
    mode = first_mode(s, blue)
    now = cut(s.now)
    return Progress(
        state=State.PROVISIONING,
        blue=blue,
        green=s.target,
        mode=mode,
        started_at=now,
        state_since=now,
        progress_since=now,
        step=wave(s) if mode is Mode.IN_PLACE else None,
    )


def _next_blue(s: Situation) -> str | None:
    """Blue of the next rollout: green, if only green answers. While green has requests but no verdict, blue
    stays blue, if enough of its pods are ready to take them. Otherwise the revision with the most traffic; on
    a tie, blue."""
    blue, green = s.progress.blue, s.progress.green
    if s.green_answers_alone:
        return green
    if s.lost_while_draining and blue != s.target:
        return blue
    unproven = s.progress.state in WITH_REQUESTS and s.progress.mode is Mode.SURGE
    if blue is not None and unproven and s.blue_ready >= min(s.wanted, s.green_ready):
        return blue
    if s.traffic is None or not s.traffic.weights:
        return blue
    return max(s.traffic.weights, key=lambda hash_: (s.weight(hash_), hash_ == blue))


def _at_rest(s: Situation) -> Progress:
    finished = s.progress.state is State.DRAINING
    return Progress(blue=s.progress.green if finished else s.progress.blue)


def _reject(s: Situation, why: Occurrence) -> Rejected:
    return Rejected(str(s.progress.green), why.reason, why.message, time_text(s.now) or "")


def _without_room(s: Situation, progress: Progress) -> Progress:
    """Continue as the spec says; with capacity Auto in place, which never stops the last ready pod."""
    mode = first_mode(s, s.progress.blue)
    mode = Mode.IN_PLACE if mode is Mode.SURGE else mode
    step = wave(s) if mode is Mode.IN_PLACE else None
    return replace(progress, mode=mode, step=step, progress_since=cut(s.now))


def _verified(s: Situation, progress: Progress) -> Progress:
    """The first verification counts as progress. A repeated one does not."""
    return progress if progress.verified else replace(progress, verified=True, progress_since=cut(s.now))


def _cold(s: Situation, progress: Progress) -> Progress:
    """An accepted promotion stays accepted. Time spent waiting for a manual promotion does not count towards
    the deadline. Time spent waiting for figures of blue does: otherwise pods that turn unready again and
    again would restart the deadline for ever."""
    progress = replace(progress, promoted=progress.promoted or s.asked_to("promote"))
    by_hand = s.progress.state is State.AWAITING_PROMOTION and s.spec.rollout.promotion == "Manual"
    if not by_hand or progress.progress_since is None:
        return progress
    waited = timedelta(seconds=s.since(s.progress.state_since))
    return replace(progress, progress_since=cut(progress.progress_since + waited))


def _promoted(s: Situation, progress: Progress) -> Progress:
    rollout = s.spec.rollout
    wanted = rollout.canary is not None or rollout.observe.control is not None
    shared = progress.mode is Mode.SURGE and wanted and s.blue_ready > 0
    step = 0 if shared else progress.step
    baseline = s.snapshot.observed.evidence.figures.get(progress.blue or "")
    promoted = replace(progress, promoted=True, step=step, baseline=baseline, progress_since=cut(s.now))
    return _weighed(s, promoted) if shared else promoted


def _next_wave(s: Situation, progress: Progress) -> Progress:
    step = min(s.wanted, (progress.step or 0) + wave(s))
    return replace(progress, step=step, progress_since=cut(s.now))


def _next_step(s: Situation, progress: Progress) -> Progress:
    """At the last step blue gets no requests any more: what it did until now is what green is compared with."""
    following = _weighed(s, replace(progress, step=(progress.step or 0) + 1))
    baseline = newer_baseline(s) if following.weight == 100 else None
    return following if baseline is None else replace(following, baseline=baseline)


def _weighed(s: Situation, progress: Progress) -> Progress:
    """The record with the weight that the spec gives to the canary's step."""
    return replace(progress, weight=replace(s, progress=progress).green_share)


def _placed(s: Situation, progress: Progress) -> Progress:
    """The deadline starts when the pods have nodes, because the revision cannot speed that up."""
    return replace(progress, progress_since=cut(s.now))


_CHANGES = {
    Event.SCHEDULED: _placed,
    Event.NO_ROOM: _without_room,
    Event.VERIFIED: _verified,
    Event.COLD: _cold,
    Event.PROMOTED: _promoted,
    Event.WAVE_READY: _next_wave,
    Event.STEP_PASSED: _next_step,
    Event.STEP_CHANGED: _weighed,
}
