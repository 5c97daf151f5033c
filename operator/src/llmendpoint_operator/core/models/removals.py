"""Failed Jobs that were to delete a model's files: the failure, its cause, and when the next attempt is made.

The failure is an annotation of the Job that is the record of the files. So the next leader neither forgets it
nor counts it twice:

    the Job has failed         it is counted once, with its cause; an Event and waiting endpoints report it
    until the pause is over    nothing; the Job stays with its pods' logs as long as the API server keeps it
    after it                   the Job is deleted if it still exists, and the next one is made
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from ..endpoint.causes import Cause
from ..endpoint.steps import Event
from ..pauses import growing_pause
from ..pods.manifests import Manifest
from ..sentences import fitting
from ..times import parse_time
from .tasks import condition_of, last_end

FAILED_ANNOTATION = "llmendpoint.io/removal-failed"
FIRST_PAUSE_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 3600.0
SAID_LIMIT = 512
"""Characters of a cause that are kept."""
REASON = "ModelNotRemoved"


@dataclass(frozen=True, slots=True)
class Failure:
    """The last of `count` failed attempts. `job`: uid of its Job, or empty. `said`: the cause."""

    count: int
    at: datetime
    job: str
    said: str

    @property
    def pause(self) -> float:
        """Seconds until the next attempt."""
        return growing_pause(FIRST_PAUSE_SECONDS, self.count, LONGEST_PAUSE_SECONDS)

    def pauses(self, now: datetime) -> bool:
        """Whether the next attempt must still wait. A failure time in the future is ignored."""
        return self.at <= now < self.at + timedelta(seconds=self.pause)


def failure_of(record: Manifest) -> Failure | None:
    """The failure on a record. None without a readable one: users can write the annotation too."""
    text = (record["metadata"].get("annotations") or {}).get(FAILED_ANNOTATION)
    if text is None:
        return None
    try:
        found = json.loads(text)
        count, at, job, why = (
            int(found["count"]),
            parse_time(found["at"]),
            str(found["job"]),
            str(found["said"]),
        )
        return Failure(count, at, job, fitting(why, SAID_LIMIT)) if at is not None else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def next_failure(record: Manifest, job: str, said: str, now: datetime) -> Failure:
    """The new failure, counted after those on the record."""
    before = failure_of(record)
    count = before.count + 1 if before else 1
    return Failure(count, now.replace(microsecond=0), job, fitting(said, SAID_LIMIT))


def failed_mark(failure: Failure) -> Manifest:
    """The merge patch that writes the failure onto its record."""
    told = {**asdict(failure), "at": failure.at.isoformat()}
    return {"metadata": {"annotations": {FAILED_ANNOTATION: json.dumps(told)}}}


def has_failed(removal: Manifest) -> bool:
    """Whether a Job that deletes files has failed."""
    return condition_of(removal, "Failed") is not None


def why_failed(removal: Manifest, pods: Sequence[Manifest]) -> str:
    """The cause, from the Job's pods or from its condition."""
    ended = last_end(pods)
    if ended is not None:
        return ended.said
    failed = condition_of(removal, "Failed") or {}
    return str(failed.get("message") or failed.get("reason") or "the cause is unknown")


def removal_cause(record: Manifest) -> Cause | None:
    """The cause for endpoints that wait until these files are deleted; None without a failure."""
    failure = failure_of(record)
    if failure is None:
        return None
    return Cause(
        REASON,
        f"{_what(record)}: {failure.said}; {_hint(record)}; the operator tries again after growing pauses",
    )


def failed_event(record: Manifest, failure: Failure) -> Event:
    """The Event about a failed attempt."""
    again = f"attempt {failure.count}, the next one in {failure.pause / 60:.0f} min"
    return Event(REASON, f"{_what(record)}: {failure.said}; {_hint(record)} ({again})", "Warning")


def given_up_event(record: Manifest, said: str) -> Event:
    """The Event about the last attempt, after which the operator gives up."""
    return Event(
        REASON,
        f"{_what(record)}: {said}; the operator does not try again, and remaining files stay",
        "Warning",
    )


def _what(record: Manifest) -> str:
    annotations = record["metadata"].get("annotations") or {}
    source, revision = (
        annotations.get(f"llmendpoint.io/model-{field}", "unknown") for field in ("source", "revision")
    )
    node = annotations.get("llmendpoint.io/model-node")
    where = f"node {node}" if node else f"claim {_claim(record)}"
    return fitting(f"{source} at {revision} cannot be deleted from {where}", SAID_LIMIT)


def _claim(record: Manifest) -> str:
    volumes = record["spec"]["template"]["spec"].get("volumes") or ()
    return next(
        (v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v), "?"
    )


def _hint(record: Manifest) -> str:
    name = record["metadata"]["name"]
    return f"make the volume writable for user 65532, or delete Job {name} to leave the files there"
