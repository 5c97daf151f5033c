"""When the files of a shared cache are deleted: after they were unused for the retention, and never while in
use.

The record is the Job that downloaded them. Each step is written before the next one is considered:

    used                    the Job has no mark (an existing mark is removed)
    unused                  marked with the time; an endpoint that wants the files waits until the mark is
    removed
    unused for long enough  marked as being removed, which is final; a running download is suspended
    being removed           a second Job deletes the files, then both Jobs are deleted; one that gets no node
    in
                            time is given up, one that fails is repeated after a growing pause (removals.py)

Several Jobs may download the same files (sharing.py). Then the files are deleted only with the last of these
Jobs; the others are deleted alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ..names import Key
from ..pods.manifests import Manifest
from ..pods.revision import Revision
from ..times import parse_time
from .files import files_of_revision, is_downloaded
from .jobs import DOWNLOAD, FILES_ANNOTATION
from .removals import failure_of, has_failed
from .tasks import REMOVING_ANNOTATION, UNUSED_ANNOTATION, Stage, condition_of, read_task

ABANDONED_SECONDS = 60.0
"""Seconds after which a download that no endpoint waits for is stopped, whatever the retention."""


class Act(StrEnum):
    """What to do with one Job."""

    MARK = "Mark"
    UNMARK = "Unmark"
    DOOM = "Doom"
    RELEASE = "Release"
    """For files on a node (nodes.py): let the suspended Job run."""
    REMOVE = "Remove"
    NOTE = "Note"
    """Record that the Job that was to delete the files has failed."""
    DELETE = "Delete"
    DELETE_REMOVAL = "DeleteRemoval"


@dataclass(frozen=True, slots=True)
class Kept:
    """A download's Job, and the Job that deletes its files, if there is one."""

    job: Manifest
    removal: Manifest | None
    used: bool

    @property
    def removing(self) -> bool:
        """Whether it is being removed, which is final."""
        return REMOVING_ANNOTATION in (self.job["metadata"].get("annotations") or {})

    @property
    def removed(self) -> bool:
        """Whether its files have been deleted."""
        return self.removal is not None and read_task(self.removal, ()).stage is Stage.DONE

    @property
    def given_up(self) -> bool:
        """Whether the deleting Job exceeded its deadline: no node runs it, or its claim is gone."""
        failed = condition_of(self.removal, "Failed") if self.removal is not None else None
        return failed is not None and failed.get("reason") == "DeadlineExceeded"

    @property
    def rank(self) -> tuple[bool, bool, str]:
        """Among Jobs with the same files, the highest rank is removed last. A complete Job ranks above
        others, because it has run where the claim is."""
        complete = condition_of(self.job, "Complete") is not None
        return (not self.removing, complete, str(self.job["metadata"]["name"]))


def siblings_of(kept: Kept, everyone: Iterable[Kept]) -> list[Kept]:
    """The other Jobs that download the same files and are not being deleted."""
    return [
        other
        for other in everyone
        if other.job["metadata"]["namespace"] == kept.job["metadata"]["namespace"]
        and other.job["metadata"]["name"] != kept.job["metadata"]["name"]
        and files_name(other.job) == files_name(kept.job)
        and "deletionTimestamp" not in other.job["metadata"]
    ]


def next_act(kept: Kept, now: datetime, retention: float, siblings: Sequence[Kept] = ()) -> Act | None:
    """The next step; None if none is due. `retention` in seconds. `siblings`: Jobs for the same files."""
    if "deletionTimestamp" in kept.job["metadata"]:
        return None
    if kept.removing:
        return _next_of_removing(kept, now, siblings)
    if any(other.removing and other.removed for other in siblings):
        return Act.DELETE  # a sibling's removal has deleted the files
    if kept.removed:
        return Act.DELETE_REMOVAL
    limit = retention if condition_of(kept.job, "Complete") else min(retention, ABANDONED_SECONDS)
    return next_mark(kept.job, kept.used, now, limit, Act.DOOM)


def _next_of_removing(kept: Kept, now: datetime, siblings: Sequence[Kept]) -> Act | None:
    if kept.removed:
        return None if siblings else Act.DELETE
    if any(other.rank > kept.rank for other in siblings):
        if kept.removal is None:
            return Act.DELETE
        return None if _has_run(kept.removal) else Act.DELETE_REMOVAL
    if siblings:
        return None
    if kept.removal is not None:
        return _next_of_removal(kept, kept.removal, now)
    failure = failure_of(kept.job)
    if failure is not None and failure.pauses(now):
        return None
    status = kept.job.get("status", {})  # `active` excludes pods that are terminating
    return None if status.get("active") or status.get("terminating") else Act.REMOVE


def _next_of_removal(kept: Kept, removal: Manifest, now: datetime) -> Act | None:
    if "activeDeadlineSeconds" not in removal["spec"]:
        return Act.DELETE_REMOVAL  # made by an earlier operator; the new one gets a deadline
    if kept.given_up:
        return Act.DELETE
    if not has_failed(removal):
        return None
    failure = failure_of(kept.job)
    if failure is None or failure.job != removal["metadata"].get("uid"):
        return Act.NOTE
    return None if failure.pauses(now) else Act.DELETE_REMOVAL


def _has_run(removal: Manifest) -> bool:
    """Whether a pod of the Job may have deleted files."""
    status = removal.get("status", {})
    return any(status.get(field) for field in ("ready", "succeeded", "failed"))


def next_mark(job: Manifest, used: bool, now: datetime, limit: float, at_end: Act) -> Act | None:
    """Mark an unused Job, unmark a used one, and return `at_end` after `limit` seconds without use."""
    since = (job["metadata"].get("annotations") or {}).get(UNUSED_ANNOTATION)
    if used:
        return Act.UNMARK if since is not None else None
    if since is None:
        return Act.MARK
    began = parse_time(since)
    if began is None:
        raise ValueError(f"{UNUSED_ANNOTATION} is no time: {since!r}")
    return at_end if (now - began).total_seconds() >= limit else None


def is_download(job: Manifest) -> bool:
    """Whether the Job downloads, and so records what a claim holds."""
    return bool(job["metadata"].get("labels", {}).get("app.kubernetes.io/component") == DOWNLOAD)


def files_name(job: Manifest) -> str:
    """The name of the files that a Job downloads: its annotation, else its own name."""
    annotations = job["metadata"].get("annotations") or {}
    return str(annotations.get(FILES_ANNOTATION) or job["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Usage:
    """Which Jobs' files are in use: `jobs`, by namespace and name. In the namespaces of `unknown`, which have
    a revision that this version of the operator cannot read, everything counts as used."""

    jobs: frozenset[Key] = frozenset()
    unknown: frozenset[str] = frozenset()

    def __contains__(self, job: Key) -> bool:
        return job in self.jobs or job[0] in self.unknown


def find_usage(recorded: Iterable[tuple[str, Revision | None]], waited_for: Iterable[Key]) -> Usage:
    """The usage by recorded revisions with their namespaces, past ones included (None: a revision that cannot
    be read), and by endpoints that wait for a Job."""
    jobs, unknown = set(waited_for), set()
    for namespace, revision in recorded:
        if revision is None:
            unknown.add(namespace)
        elif revision.commit and revision.inputs.model.cache and is_downloaded(revision.inputs.model):
            jobs.add((namespace, files_of_revision(revision).job_name))
    return Usage(frozenset(jobs), frozenset(unknown))


def marking(act: Act, now: datetime) -> dict[str, Any]:
    """The merge patch for a marking act. DOOM suspends the Job, which stops a running download."""
    if act is Act.UNMARK:
        return {"metadata": {"annotations": {UNUSED_ANNOTATION: None}}}
    if act is Act.RELEASE:
        return {"metadata": {"annotations": {REMOVING_ANNOTATION: "true"}}, "spec": {"suspend": False}}
    if act is Act.DOOM:
        return {"metadata": {"annotations": {REMOVING_ANNOTATION: "true"}}, "spec": {"suspend": True}}
    return {"metadata": {"annotations": {UNUSED_ANNOTATION: now.isoformat(timespec="seconds")}}}
