"""Whether an operator runs in the cluster. The operator that leads renews its Lease every few seconds.

| the Leases that can be read | presence |
|---|---|
| may not be read (they need `list` on leases of the whole cluster) | Unknown |
| one is held, and was renewed of late | Working |
| else | Absent |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .objects import Object, age_text, full_name, parse_time

LEASE_NAME = "llmendpoint-operator"
STALE_AFTER_S = 60.0
"""A few times the duration of a Lease: another operator needs some seconds to take over, and a busy one may be late."""


class Presence(StrEnum):
    """Of an operator."""

    WORKING = "Working"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class OperatorView:
    """`why` is a sentence where it is absent, else empty."""

    presence: Presence
    why: str = ""


UNKNOWN = OperatorView(Presence.UNKNOWN)


def view_operator(leases: Sequence[Object] | None, now: datetime | None) -> OperatorView:
    """By the table above. `now` is the API server's time, because the time of a laptop may be wrong; None if unknown.
    With several operators, one for each namespace, one that runs is enough: a Lease does not say what it watches."""
    if leases is None or now is None:
        return UNKNOWN
    known = [(lease, renewed) for lease in leases if (renewed := _renewed(lease)) is not None]
    if any(_holder(lease) and (now - renewed).total_seconds() < STALE_AFTER_S for lease, renewed in known):
        return OperatorView(Presence.WORKING)
    if not known:
        return OperatorView(
            Presence.ABSENT,
            "no operator runs in this cluster: none has ever held the Lease llmendpoint-operator",
        )
    lease, renewed = max(known, key=lambda pair: pair[1])
    if not _holder(lease) and (now - renewed).total_seconds() < STALE_AFTER_S:
        return UNKNOWN  # one has just ended, as on every upgrade; the next takes over in a moment
    return OperatorView(
        Presence.ABSENT,
        f"no operator runs: its Lease {full_name(lease)} was last renewed {age_text(renewed.isoformat(), now)} ago; "
        "the status below is from then",
    )


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _renewed(lease: Object) -> datetime | None:
    return parse_time((lease.get("spec") or {}).get("renewTime"))
