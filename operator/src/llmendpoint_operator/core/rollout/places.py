"""Where green's pods run: beside blue's, or in their places; and why they may find no place."""

from __future__ import annotations

from datetime import datetime

from ...api import Capacity, Mode, Strategy
from ..endpoint.ownership import bars_pods
from ..names import child_name
from ..pods.state import unscheduled_since
from ..times import parse_time
from .machine import BEFORE_THE_SWITCH, State
from .prospects import Prospect
from .situation import Situation


def unschedulable_since(s: Situation) -> datetime | None:
    """When the first of green's waiting pods began to wait for a node; None if that must not take blue's
    places. A single replica that answers keeps its place: until the new one answers, nothing would."""
    mine = s.spec.rollout.capacity is Capacity.AUTO and s.progress.mode is Mode.SURGE
    mine = mine and (s.wanted > 1 or s.blue_lost)
    if not mine or s.live(s.progress.blue) == 0 or s.progress.state not in BEFORE_THE_SWITCH:
        return None
    waiting = (unscheduled_since(pod) for pod in s.unplaced)
    moments = [parse_time(text) or s.progress.state_since for text in waiting if text is not None]
    return min((moment for moment in moments if moment is not None), default=None)


def first_mode(s: Situation, blue: str | None) -> Mode:
    """The mode in which a rollout begins; Surge (beside the old pods) with capacity Auto."""
    rollout = s.spec.rollout
    if blue is None or s.wanted == 0:
        return Mode.SURGE
    if rollout.strategy is Strategy.RECREATE or rollout.capacity is Capacity.RECREATE:
        return Mode.RECREATE
    return Mode.IN_PLACE if rollout.capacity is Capacity.IN_PLACE else Mode.SURGE


def asks_for_places(s: Situation) -> bool:
    """Whether green's pods are stuck beside blue's, and the spec now says that they take blue's places."""
    beside = s.progress.mode is Mode.SURGE and s.progress.state in (State.PROVISIONING, State.WARMING)
    return (
        beside
        and s.progress.blue is not None
        and s.stuck
        and first_mode(s, s.progress.blue) is not Mode.SURGE
    )


def barred(s: Situation) -> bool:
    """Whether green's pods cannot be created because a foreign object has a child's name."""
    name = child_name(s.snapshot.endpoint.name, s.progress.green or "")
    return s.progress.state in BEFORE_THE_SWITCH and bars_pods(s.snapshot.foreign, name)


def held(s: Situation) -> bool:
    """Whether green waits for something that is not its fault: a node that will come (in Surge with capacity
    Auto, any node), or a name that a foreign object has. Blue answers meanwhile."""
    if barred(s):
        return True
    if s.progress.state not in (State.PROVISIONING, State.WARMING) or not s.unplaced:
        return False
    beside = s.spec.rollout.capacity is Capacity.AUTO and s.progress.mode is Mode.SURGE
    return beside or s.prospect is Prospect.COMING
