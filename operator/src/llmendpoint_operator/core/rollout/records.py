"""The rollout's part of the status, as values that read themselves from it and write themselves back.

Times have milliseconds: with whole seconds a delay could end up to a second early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...api import Mode
from ...api import RolloutState as State
from ..sentences import fitting
from ..times import parse_time, time_text
from .account import Account, parse_account
from .evidence import Figures, Window
from .machine import WITH_REQUESTS
from .written import figures_json, parse_figures, present

Json = dict[str, Any]


def cut(time: datetime) -> datetime:
    """The time as it is read back from the status."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


@dataclass(frozen=True, slots=True)
class Progress:
    """`status.rollout`. `step`: index of the canary step, from 0; in place, the number of green's pods wanted
    so far. `weight`: green's share in percent, where blue gets some too. `account`: of green's observation so far."""

    state: State = State.IDLE
    blue: str | None = None
    green: str | None = None
    mode: Mode = Mode.SURGE
    started_at: datetime | None = None
    state_since: datetime | None = None
    progress_since: datetime | None = None
    step: int | None = None
    weight: int | None = None
    verified: bool = False
    promoted: bool = False
    baseline: Figures | None = None
    account: Account | None = None
    message: str | None = None

    @property
    def window(self) -> Window | None:
        """The window of figures that apply to green now."""
        if self.state not in WITH_REQUESTS:
            return None
        return _window(self.green, self.mode, self.step, self.weight)

    def as_json(self) -> Json:
        """The JSON form. In state Idle it has only state and blue."""
        if self.state is State.IDLE:
            return present({"state": str(self.state), "blue": self.blue})
        return present(
            {
                "state": str(self.state),
                "blue": self.blue,
                "green": self.green,
                "mode": str(self.mode),
                "startedAt": time_text(self.started_at),
                "stateSince": time_text(self.state_since),
                "progressSince": time_text(self.progress_since),
                "step": self.step,
                "weight": self.weight,
                "verified": self.verified,
                "promoted": self.promoted,
                "baseline": figures_json(self.baseline),
                "observation": self.account.as_json() if self.account else None,
                "message": fitting(self.message) if self.message else None,
            }
        )


def find_window(rollout: Mapping[str, Any]) -> Window | None:
    """The window that `status.rollout` describes; figures are counted anew when it changes. Each canary step
    is a window of its own; all waves of an exchange in place are one, because there `step` counts pods. None
    while green has no requests."""
    if rollout.get("state") not in WITH_REQUESTS:
        return None
    return _window(rollout.get("green"), rollout.get("mode"), rollout.get("step"), rollout.get("weight"))


def _window(green: str | None, mode: str | None, step: int | None, weight: int | None) -> Window:
    return str(green), None if mode == Mode.IN_PLACE else step, weight


def parse_progress(status: Mapping[str, Any], active: str | None) -> Progress:
    """`active`: the revision that gets requests. At rest it is blue, whatever the status says."""
    found: Mapping[str, Any] = status.get("rollout") or {}
    try:
        state, mode = State(found.get("state", State.IDLE)), Mode(found.get("mode", Mode.SURGE))
    except ValueError:
        return Progress(blue=active)
    if state is State.IDLE or not found.get("green"):
        return Progress(blue=active)
    return Progress(
        state=state,
        blue=found.get("blue"),
        green=found["green"],
        mode=mode,
        started_at=parse_time(found.get("startedAt")),
        state_since=parse_time(found.get("stateSince")),
        progress_since=parse_time(found.get("progressSince")),
        step=found.get("step"),
        weight=found.get("weight"),
        verified=bool(found.get("verified")),
        promoted=bool(found.get("promoted")),
        baseline=parse_figures(found.get("baseline")),
        account=parse_account(found.get("observation")),
        message=found.get("message"),
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """`status.traffic`: percent of new requests by revision, in the order of the status."""

    epoch: int
    weights: Mapping[str, int]
    draining: tuple[str, ...] = ()
    draining_since: datetime | None = None

    def as_json(self) -> Json:
        """The form that gateways read."""
        weights = [{"revision": revision, "weight": weight} for revision, weight in self.weights.items()]
        return present(
            {
                "epoch": self.epoch,
                "weights": weights,
                "draining": list(self.draining) or None,
                "drainingSince": time_text(self.draining_since),
            }
        )


def parse_traffic(status: Mapping[str, Any]) -> Traffic | None:
    """The assignment in the status; None without one."""
    found = status.get("traffic")
    if not found:
        return None
    weights = {str(item["revision"]): int(item["weight"]) for item in found.get("weights", ())}
    since = parse_time(found.get("drainingSince"))
    return Traffic(int(found["epoch"]), weights, tuple(found.get("draining", ())), since)


@dataclass(frozen=True, slots=True)
class Rejected:
    """`status.rejected`."""

    revision: str
    reason: str
    message: str
    at: str

    def as_json(self) -> Json:
        """The JSON form."""
        return {
            "revision": self.revision,
            "reason": self.reason,
            "message": fitting(self.message),
            "at": self.at,
        }


def parse_rejected(status: Mapping[str, Any]) -> Rejected | None:
    """The rejected revision in the status; None without one."""
    found = status.get("rejected")
    return Rejected(found["revision"], found["reason"], found["message"], found["at"]) if found else None


@dataclass(frozen=True, slots=True)
class Override:
    """`status.override`: while the spec's own revision is `inputs`, `revision` is the target instead."""

    inputs: str
    revision: str
    salt: str = ""

    def as_json(self) -> Json:
        """The JSON form, without an empty salt."""
        found = {"inputs": self.inputs, "revision": self.revision}
        return found | ({"salt": self.salt} if self.salt else {})


def parse_override(status: Mapping[str, Any]) -> Override | None:
    """The override in the status; None without one."""
    found = status.get("override")
    return Override(found["inputs"], found["revision"], found.get("salt", "")) if found else None
