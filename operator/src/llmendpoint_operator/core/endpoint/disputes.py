"""Children that something changes back whatever we write: an admission policy, a webhook, another controller.

Writing the same again changes nothing and hides the cause: after a few attempts the write is held for a while, ever longer,
and the endpoint says who and what it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..pauses import growing_pause
from ..pods.manifests import Manifest
from ..sentences import fitting
from .causes import Cause
from .steps import Apply, Step

ATTEMPTS = 3
"""Writes of the same thing before the next is held; FUTILE where the API server's own answer still differs."""
FUTILE = 2
FIRST_HOLD_SECONDS = 30.0
LONGEST_HOLD_SECONDS = 600.0
QUICK_SECONDS = 60.0
"""Writes of the same thing count together while each follows the last within this time: who changes a child by hand now and
then has it put back at once."""
CALM_SECONDS = 1200.0
"""So long after the last write of the same thing the count begins anew once writing it again was of no use."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """About one child: `wanted` tells what was written, `count` how often, `at` when last, in seconds of one clock.
    `field`: what is changed back. `by`: who does it, where that is known. `futile`: the write itself changed nothing."""

    kind: str
    name: str
    wanted: str
    count: int
    at: float
    field: str = ""
    by: str = ""
    futile: bool = False

    @property
    def open(self) -> bool:
        """Whether writing again is of no use."""
        return self.count >= (FUTILE if self.futile else ATTEMPTS)

    def forgotten(self, now: float) -> bool:
        """Whether the next write is the first of a new count."""
        return now - self.at >= (CALM_SECONDS if self.open else QUICK_SECONDS)

    @property
    def until(self) -> float:
        """When it is written again."""
        if not self.open:
            return self.at
        beyond = self.count - (FUTILE if self.futile else ATTEMPTS) + 1
        return self.at + growing_pause(FIRST_HOLD_SECONDS, beyond, LONGEST_HOLD_SECONDS)


Disputes = Mapping[tuple[str, str], Dispute]
"""By kind and name."""


def fingerprint(manifest: Manifest) -> str:
    """Tells one wanted manifest from another."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]


def written(before: Dispute | None, manifest: Manifest, left: str | None, now: float) -> Dispute:
    """After a change of a child that was there. `left`: the field that the API server's answer still has otherwise."""
    wanted = fingerprint(manifest)
    same = before is not None and before.wanted == wanted and not before.forgotten(now)
    if before is None or not same:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        return Dispute(kind, name, wanted, 1, now, left or "", futile=left is not None)
    return replace(
        before, count=before.count + 1, at=now, field=left or before.field, futile=left is not None
    )


def unheld(steps: Iterable[Step], disputes: Disputes, now: float) -> Iterable[Step]:
    """The steps without those that are of no use now."""
    for step in steps:
        if isinstance(step, Apply):
            dispute = disputes.get((step.manifest["kind"], step.manifest["metadata"]["name"]))
            if dispute and now < dispute.until and dispute.wanted == fingerprint(step.manifest):
                continue
        yield step


def dispute_cause(disputes: Disputes) -> Cause | None:
    """Of the first that is open."""
    found = [dispute for _, dispute in sorted(disputes.items()) if dispute.open]
    if not found:
        return None
    return Cause("ChildContested", said(found[0]))


def said(dispute: Dispute) -> str:
    """Who does what, and what to do about it."""
    what = f"{dispute.kind} {dispute.name}: {dispute.field or 'a field'}"
    who = dispute.by or "an admission policy or webhook"
    hint = "exclude this object there; until then the operator tries again after growing pauses"
    return fitting(f"{what} is not as the operator writes it, because {who} changes it back; {hint}")
