"""The decision for one moment: takes every move that has happened, starting from the state in the status.

A switch of traffic is written into the status before anything that depends on it is done; plan.py orders the
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from ...api import LLMEndpointSpec
from ..endpoint.causes import Cause
from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Event
from ..pods.agreement import current_hash
from ..pods.revision import Revision
from ..pods.state import Counts, count_pods, is_finished
from ..scaling.scaledown import ScaleDown, plan_scale_down
from ..times import parse_time
from .machine import MOVES, State
from .moves import move, narrate
from .observation import Answer as Observed
from .observation import account, observing
from .occurrences import OCCURRED
from .places import barred
from .records import (
    Override,
    Progress,
    Rejected,
    Traffic,
    cut,
    parse_override,
    parse_progress,
    parse_rejected,
    parse_traffic,
)
from .replicas import wanted_pods
from .requests import Answer, answer
from .situation import Situation
from .target import Target, find_active, find_override, find_target
from .traffic import most_weight, next_traffic, wanted_weights
from .waiting import deadline_in, waits

MOST_MOVES = 32
"""Limit of moves in one moment, without canary steps and waves. A rollout that never waits takes seven."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The decision. `replicas`: the wanted count of each revision that has, or will get, a Deployment.
    `counts`: the existing pods. `number`: of the target's ControllerRevision, the highest of all."""

    target: Revision | None
    target_hash: str | None
    number: int
    active: str | None
    previous: str | None
    switched_at: datetime | None
    replicas: Mapping[str, int]
    counts: Mapping[str, Counts]
    pruned: tuple[str, ...]
    requeue_after: float | None
    problem: Cause | None
    progress: Progress
    traffic: Traffic | None = None
    rejected: Rejected | None = None
    override: Override | None = None
    answer: Answer | None = None
    scale_down: ScaleDown = field(default_factory=lambda: ScaleDown({}))
    events: tuple[Event, ...] = ()


def decide(snapshot: Snapshot, spec: LLMEndpointSpec, now: datetime) -> Rollout:
    """The rollout at `now` (UTC)."""
    status = snapshot.endpoint.status
    counts, inputs = count_pods(snapshot.pods), current_hash(spec, snapshot.revisions)
    previous = find_active(snapshot)
    progress, rejected = parse_progress(status, previous), parse_rejected(status)
    override = find_override(snapshot, spec, previous, inputs)
    current = _find_target(snapshot, spec, override, inputs)
    answered = answer(snapshot, spec, progress, current.hash, previous, rejected)
    if answered is not None and answered.override is not None:
        override = answered.override
        current = _find_target(snapshot, spec, override, inputs)
    if rejected is not None and rejected.revision != current.hash:
        rejected = None
    situation, events = _advance(
        Situation(
            snapshot=snapshot,
            spec=spec,
            wanted=snapshot.wanted,
            counts=counts,
            now=now,
            target=current.revision.hash if current.revision else None,
            progress=progress,
            traffic=parse_traffic(status) or _traffic_of(previous),
            switched_at=parse_time(status.get("switchedAt")) or (cut(now) if previous else None),
            rejected=rejected,
            accepted=answered.request if answered and answered.accepted else None,
        )
    )
    return _conclude(situation, current, previous, override, answered, events)


def _find_target(snapshot: Snapshot, spec: LLMEndpointSpec, override: Override | None, inputs: str) -> Target:
    hash_, salt = (override.revision, override.salt) if override else (inputs, "")
    return find_target(snapshot, spec, hash_, salt)


def freeze(snapshot: Snapshot, problem: Cause) -> Rollout:
    """A rollout that changes nothing; the status shows the problem."""
    status = snapshot.endpoint.status
    active = find_active(snapshot)
    return Rollout(
        target=None,
        target_hash=None,
        number=0,
        active=active,
        previous=active,
        switched_at=parse_time(status.get("switchedAt")),
        replicas={},
        counts=count_pods(snapshot.pods),
        pruned=(),
        requeue_after=None,
        problem=problem,
        progress=parse_progress(status, active),
        traffic=parse_traffic(status),
        rejected=parse_rejected(status),
        override=parse_override(status),
    )


def _traffic_of(active: str | None) -> Traffic | None:
    """The assignment if the status has none. Its epoch 0 is earlier than every real one."""
    return Traffic(0, {active: 100}) if active else None


def _advance(s: Situation) -> tuple[Situation, list[Event]]:
    """Take every move that has happened, each judged in the state after the one before. An accepted request
    applies only to the state in which it was accepted."""
    told: list[Event] = []
    s = _reassign(s)
    for _ in range(_most_moves(s)):
        for event in MOVES[s.progress.state]:
            why = OCCURRED[event](s)
            if why is not None:
                break
        else:
            return _pause(s, told)
        said = narrate(s, event, why)
        told += [said] if said else []
        progress, rejected = move(s, event, why)
        s = _reassign(replace(s, progress=progress, rejected=rejected, accepted=None))
    raise AssertionError(f"a rollout in {s.progress.state} moves for ever")


def _most_moves(s: Situation) -> int:
    """A canary step takes two moves (passed, switched), and a wave has at least one replica."""
    canary = s.spec.rollout.canary
    return MOST_MOVES + (2 * len(canary.steps) if canary else 0) + s.wanted


def _pause(s: Situation, told: list[Event]) -> tuple[Situation, list[Event]]:
    """No move is left: record what a verification waits for, and report a missing verdict once."""
    if s.progress.state is State.VERIFYING:
        running = s.verification
        if running is not None:
            s = replace(s, progress=replace(s.progress, message=running.message or None))
    if barred(s) and deadline_in(s) < s.spec.progress_deadline_seconds / 2:
        # Each renewal of the deadline is a write, so it waits until half has passed. At least half is left
        # once
        # the foreign object is gone.
        s = replace(s, progress=replace(s.progress, progress_since=cut(s.now)))
    if s.progress.state is State.OBSERVING:
        found = observing(s)
        if found.answer is Observed.PAUSE and s.progress.message != found.message:
            told.append(Event(found.reason, f"revision {s.progress.green}: {found.message}", "Warning"))
            s = replace(s, progress=replace(s.progress, message=found.message))
        before, now = s.progress.account, account(s)
        if now is not None and now.late and not (before and before.late):
            told.append(Event("VerdictLate", f"revision {s.progress.green}: {now.late}", "Warning"))
        s = replace(s, progress=replace(s.progress, account=now))
    return s, told


def _reassign(s: Situation) -> Situation:
    """The traffic assignment for the rollout's present state."""
    before = s.traffic
    drains = (before.draining, before.draining_since) if before else ((), None)
    known = None if before is None or before.epoch == 0 else before
    traffic = next_traffic(known, wanted_weights(s), drains, s.now, s.snapshot.observed.evidence)
    moved = traffic is not None and (before is None or dict(traffic.weights) != dict(before.weights))
    return replace(s, traffic=traffic or before, switched_at=cut(s.now) if moved else s.switched_at)


def _conclude(
    s: Situation,
    current: Target,
    previous: str | None,
    override: Override | None,
    answered: Answer | None,
    events: list[Event],
) -> Rollout:
    """The result after the last move: counts, draining pods and history."""
    snapshot, traffic = s.snapshot, s.traffic
    weights = traffic.weights if traffic else {}
    wanted = wanted_pods(s)
    scale_down = plan_scale_down(snapshot, wanted, weights, s.now)
    if traffic is not None:
        known = None if traffic.epoch == 0 else traffic
        since = cut(scale_down.draining_since) if scale_down.draining_since else None
        traffic = next_traffic(
            known, weights, (scale_down.draining, since), s.now, snapshot.observed.evidence
        )
    # The revision that an undo replaced must be kept: its record shows whether the spec is still the same.
    standing = override is not None and not override.salt and override.inputs in snapshot.revisions
    undone = override.inputs if override is not None and standing else None
    serving = {s.progress.blue, s.progress.green, current.hash, undone, *weights}
    pending = [*waits(s), scale_down.requeue_after or 0.0]
    return Rollout(
        target=current.revision,
        target_hash=current.revision.hash if current.revision else None,
        number=_number(snapshot, current.revision),
        active=most_weight(weights, previous),
        previous=previous,
        switched_at=s.switched_at,
        replicas=scale_down.replicas,
        counts=s.counts,
        pruned=_pruned(snapshot, s.spec, serving, scale_down.replicas),
        requeue_after=min((wait for wait in pending if wait > 0), default=None),
        problem=current.problem,
        progress=s.progress,
        traffic=traffic,
        rejected=s.rejected,
        override=override,
        answer=answered,
        scale_down=scale_down,
        events=(*events, *_answer_event(answered)),
    )


def _answer_event(answered: Answer | None) -> tuple[Event, ...]:
    if answered is None:
        return ()
    request, said = answered.request, "accepted" if answered.accepted else "refused"
    kind = "Request" + said.capitalize()
    message = f"{request.action} (request {request.id}) {said}: {answered.message}"
    return (Event(kind, message) if answered.accepted else Event(kind, message, "Warning"),)


def _number(snapshot: Snapshot, target: Revision | None) -> int:
    numbers = {hash_: int(record.get("revision", 0)) for hash_, record in snapshot.records.items()}
    highest = max(numbers.values(), default=0)
    if target is not None and numbers.get(target.hash) == highest:
        return highest
    return highest + 1


def _pruned(
    snapshot: Snapshot, spec: LLMEndpointSpec, serving: set[str | None], replicas: Mapping[str, int]
) -> tuple[str, ...]:
    """Old revisions beyond the history limit whose pods are gone or finished, and old Deployments without a
    record, which cannot be rendered any more."""
    old = [hash_ for hash_ in {*snapshot.records, *snapshot.deployments} if hash_ not in serving]
    unused = [hash_ for hash_ in old if replicas.get(hash_, 0) == 0]
    empty = [hash_ for hash_ in unused if all(map(is_finished, snapshot.pods.get(hash_, ())))]
    gone = [hash_ for hash_ in unused if hash_ in empty or hash_ not in snapshot.records]
    newest_first = sorted(old, key=lambda hash_: -int(snapshot.records.get(hash_, {}).get("revision", 0)))
    kept = [hash_ for hash_ in newest_first if hash_ in snapshot.records and hash_ in snapshot.deployments]
    return tuple(sorted(hash_ for hash_ in gone if hash_ not in kept[: spec.revision_history_limit]))
