"""How many pods each revision gets, by the mode of the rollout.

| mode | before the switch | after it | after a rollback |
|---|---|---|---|
| Surge | both get the wanted count | green gets it, blue keeps its pods until it is drained; at zero both have none, and both scale up together | blue gets it, green keeps its pods for abortScaleDownDelay |
| InPlace | green gets its wave, blue the rest | the same, until green has all | blue gets the wanted count, green what minAvailable still needs |
| Recreate | green gets the wanted count, blue none | the same | the reverse |

Revisions that are neither blue nor green keep their pods until their last requests end and no gateway sends
to them.
"""

from __future__ import annotations

from ...api import Mode
from .machine import AT_REST, BEFORE_THE_SWITCH, GIVEN_UP, WITH_REQUESTS, State
from .situation import Situation


def wanted_pods(s: Situation) -> dict[str, int]:
    """Counts by revision, for every revision that has, or will get, a Deployment."""
    counts = dict.fromkeys(s.snapshot.deployments, 0)
    counts |= {hash_: s.live(hash_) if _still_needed(s, hash_) else 0 for hash_ in s.others()}
    blue, green = s.progress.blue, s.progress.green
    if s.progress.state is State.IDLE:
        return counts | ({blue: s.wanted} if blue else {})
    if s.progress.mode is Mode.IN_PLACE:
        return counts | _held(s, exchange(s))
    pair = _recreate(s) if s.progress.mode is Mode.RECREATE else _surge(s)
    return counts | {hash_: pair[i] for i, hash_ in enumerate((blue, green)) if hash_ is not None}


def _surge(s: Situation) -> tuple[int, int]:
    """Counts of (blue, green)."""
    state = s.progress.state
    if state in BEFORE_THE_SWITCH:
        return s.wanted, s.green_wanted
    if state in GIVEN_UP:
        return s.wanted, _given_up(s)
    asleep = s.wanted == 0 or s.live(s.progress.blue) == 0
    both = s.green_share < 100 or (asleep and state in WITH_REQUESTS)
    return s.wanted if both else s.live(s.progress.blue), s.wanted


def _recreate(s: Situation) -> tuple[int, int]:
    """Counts of (blue, green)."""
    return (s.wanted, 0) if s.progress.state in GIVEN_UP else (0, s.green_wanted)


def _given_up(s: Situation) -> int:
    """Green's pods after a rollback. They are kept for inspection, and for green's last requests."""
    live, delay = s.live(s.progress.green), s.spec.rollout.abort_scale_down_delay
    kept = s.remaining(s.progress.state_since, delay) > 0
    if s.progress.state not in AT_REST:
        return live
    return live if kept or s.weight(s.progress.green) > 0 else 0


def exchange(s: Situation) -> dict[str, int]:
    """Counts in place: old pods make room for new ones; ready ones only as far as minAvailable permits."""
    blue, green = str(s.progress.blue), str(s.progress.green)
    minimum = s.minimum
    if s.progress.state in GIVEN_UP:
        needed = max(0, minimum - s.blue_ready)
        return {blue: s.wanted, green: min(s.live(green), s.green_ready, needed)}
    step = s.green_wanted
    serving = 0 if s.progress.state in BEFORE_THE_SWITCH else s.green_ready
    floor = max(0, minimum - serving)
    room = max(0, s.wanted - step)
    kept_blue = max(min(s.live(blue), room), min(s.blue_ready, floor))
    if not s.others():
        kept_blue = max(room, kept_blue)
    counts = {blue: kept_blue, green: step}
    floor -= min(s.blue_ready, kept_blue)
    room -= kept_blue
    for other in s.others():
        ready = s.ready(other)
        counts[other] = max(min(s.live(other), room), min(ready, floor), 0)
        floor, room = floor - min(ready, counts[other]), room - counts[other]
    return counts


def _held(s: Situation, counts: dict[str, int]) -> dict[str, int]:
    """The counts, with the last old pods kept until every gateway has switched away from them."""
    if not s.awaits_gateways:
        return counts
    return {
        hash_: count or (s.live(hash_) if hash_ != s.progress.green else 0) for hash_, count in counts.items()
    }


def _still_needed(s: Situation, other: str) -> bool:
    return s.keeps_old_pods or s.weight(other) > 0
