"""A Job that was to delete a model's files and failed: that it did, why, and when the next one is made.

It stands on the Job that is the record of the files, so that the next operator neither forgets it nor counts it twice:

    the Job has failed          counted once, with its cause; an Event tells it, and whoever waits for the model
    until the pause is over     nothing; the Job stays as long as the API server lets it, with its pods' logs
    after it                    the Job goes where it is still there, and the next one is made
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
"""Characters of a cause."""
REASON = "ModelNotRemoved"


@dataclass(frozen=True, slots=True)
class Failure:
    """The last of `count` failed attempts. `job`: uid of the Job; empty where none could be made. `said`: why."""

    count: int
    at: datetime
    job: str
    said: str

    @property
    def pause(self) -> float:
        """Seconds until the next attempt."""
        return growing_pause(FIRST_PAUSE_SECONDS, self.count, LONGEST_PAUSE_SECONDS)

    def pauses(self, now: datetime) -> bool:
        """Whether the next attempt is still to come. A time that is still to come itself holds nothing up."""
        return self.at <= now < self.at + timedelta(seconds=self.pause)


def failure_of(record: Manifest) -> Failure | None:
    """What stands on a record; None where nothing does, or nothing that can be read: users may write it, too."""
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
    """The failure after those that the record tells of."""
    before = failure_of(record)
    count = before.count + 1 if before else 1
    return Failure(count, now.replace(microsecond=0), job, fitting(said, SAID_LIMIT))


def failed_mark(failure: Failure) -> Manifest:
    """What a failure changes of its record, as a merge patch."""
    told = {**asdict(failure), "at": failure.at.isoformat()}
    return {"metadata": {"annotations": {FAILED_ANNOTATION: json.dumps(told)}}}


def has_failed(removal: Manifest) -> bool:
    """Whether a Job that deletes files ended without having done so."""
    return condition_of(removal, "Failed") is not None


def why_failed(removal: Manifest, pods: Sequence[Manifest]) -> str:
    """From its pods, or from what the API server says of it."""
    ended = last_end(pods)
    if ended is not None:
        return ended.said
    failed = condition_of(removal, "Failed") or {}
    return str(failed.get("message") or failed.get("reason") or "the cause is unknown")


def removal_cause(record: Manifest) -> Cause | None:
    """For who waits for files that are to be deleted first; None while nothing went wrong."""
    failure = failure_of(record)
    if failure is None:
        return None
    return Cause(
        REASON,
        f"{_what(record)}: {failure.said}; {_hint(record)}; the operator tries again after growing pauses",
    )


def failed_event(record: Manifest, failure: Failure) -> Event:
    """For who looks at the namespace."""
    again = f"attempt {failure.count}, the next one in {failure.pause / 60:.0f} min"
    return Event(REASON, f"{_what(record)}: {failure.said}; {_hint(record)} ({again})", "Warning")


def given_up_event(record: Manifest, said: str) -> Event:
    """Nobody will try again."""
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
