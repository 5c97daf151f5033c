"""Whether an operator runs in the cluster. The leading operator renews its Lease every few seconds.

| the Leases | presence |
|---|---|
| may not be read (this needs `list` on leases of the whole cluster) | Unknown |
| one is held, and was renewed recently | Working |
| none is held, and the last one was renewed recently | Unknown |
| otherwise | Absent |
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
    """Whether an operator runs."""

    WORKING = "Working"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class OperatorView:
    """`why`: a sentence if no operator runs, else empty."""

    presence: Presence
    why: str = ""


UNKNOWN = OperatorView(Presence.UNKNOWN)


def view_operator(leases: Sequence[Object] | None, now: datetime | None) -> OperatorView:
    """Apply the table above. `now`: the API server's time, because a laptop's may be wrong; None if unknown. If there
    are several operators, one for each namespace, a single running one is enough: a Lease does not say what its
    operator watches."""
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
        return UNKNOWN  # an operator has just stopped, as on every upgrade; the next takes over soon
    return OperatorView(
        Presence.ABSENT,
        f"no operator runs: its Lease {full_name(lease)} was last renewed {age_text(renewed.isoformat(), now)} ago; "
        "the status below is from then",
    )


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _renewed(lease: Object) -> datetime | None:
    return parse_time((lease.get("spec") or {}).get("renewTime"))
