"""Children that another writer changes back after every write: an admission policy, a webhook, another
controller.

Repeating the write has no effect and hides the cause. After a few attempts the operator holds the write for
growing pauses, and the endpoint's status names the field and the writer.
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
"""Writes of the same content before the next is held. FUTILE applies if the answer still differs."""
FUTILE = 2
FIRST_HOLD_SECONDS = 30.0
LONGEST_HOLD_SECONDS = 600.0
QUICK_SECONDS = 60.0
"""Writes of the same content count together if each follows the last one within this time. So an occasional
manual change of a child is undone at once."""
CALM_SECONDS = 1200.0
"""Once writing again was of no use, the count restarts this long after the last write of the same content."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """About one child. `wanted`: fingerprint of the written manifest. `count`: number of writes. `at`: time
    of the last one, in seconds of one clock. `field`: the field that is changed back. `by`: the writer, if
    known. `futile`: the last write had no effect."""

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
        """Whether the next write starts a new count."""
        return now - self.at >= (CALM_SECONDS if self.open else QUICK_SECONDS)

    @property
    def until(self) -> float:
        """The time from which the child may be written again."""
        if not self.open:
            return self.at
        beyond = self.count - (FUTILE if self.futile else ATTEMPTS) + 1
        return self.at + growing_pause(FIRST_HOLD_SECONDS, beyond, LONGEST_HOLD_SECONDS)


Disputes = Mapping[tuple[str, str], Dispute]
"""By kind and name."""


def fingerprint(manifest: Manifest) -> str:
    """A hash that identifies the content of a manifest."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]


def written(before: Dispute | None, manifest: Manifest, left: str | None, now: float) -> Dispute:
    """The dispute after a change of an existing child. `left`: the field that differs in the answer."""
    wanted = fingerprint(manifest)
    same = before is not None and before.wanted == wanted and not before.forgotten(now)
    if before is None or not same:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        return Dispute(kind, name, wanted, 1, now, left or "", futile=left is not None)
    return replace(
        before, count=before.count + 1, at=now, field=left or before.field, futile=left is not None
    )


def unheld(steps: Iterable[Step], disputes: Disputes, now: float) -> Iterable[Step]:
    """The steps without the writes that are held now."""
    for step in steps:
        if isinstance(step, Apply):
            dispute = disputes.get((step.manifest["kind"], step.manifest["metadata"]["name"]))
            if dispute and now < dispute.until and dispute.wanted == fingerprint(step.manifest):
                continue
        yield step


def dispute_cause(disputes: Disputes) -> Cause | None:
    """The cause for the first open dispute."""
    found = [dispute for _, dispute in sorted(disputes.items()) if dispute.open]
    if not found:
        return None
    return Cause("ChildContested", said(found[0]))


def said(dispute: Dispute) -> str:
    """What is changed back, by whom, and what to do."""
    what = f"{dispute.kind} {dispute.name}: {dispute.field or 'a field'}"
    who = dispute.by or "an admission policy or webhook"
    hint = "exclude this object there; until then the operator tries again after growing pauses"
    return fitting(f"{what} is not as the operator writes it, because {who} changes it back; {hint}")
