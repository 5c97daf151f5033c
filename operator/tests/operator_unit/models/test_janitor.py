"""docs/concepts/models.md: where two Jobs brought the same files, the last one removes them; failures are tried again.

Sweep follows sweep until nothing changes any more.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.steps import Event
from llmendpoint_operator.core.models.jobs import REMOVE_SUFFIX, make_download_job, pod_digest
from llmendpoint_operator.core.models.removals import (
    FAILED_ANNOTATION,
    failed_mark,
    next_failure,
    removal_cause,
)
from llmendpoint_operator.core.names import MANAGER, MODEL_JOB_LABEL
from llmendpoint_operator.errors import Refused
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.events import EventWriter
from llmendpoint_operator.observe.models.janitor import Janitor

from ..fake_cluster import NOW
from ..model_stage import REVISION, RUNTIME, ended_pod
from .test_models import CACHED, inputs

WEEK = 7 * 86_400.0
DONE = {"conditions": [{"type": "Complete", "status": "True"}]}
PLAIN = inputs(CACHED)
ELSEWHERE = inputs(CACHED, resources={"nodeSelector": {"no": "such"}})


class Api(KubeApi):
    """What the API server does with Jobs, in memory."""

    def __init__(self) -> None:
        self.caches = Caches(self, lambda _: None, None)
        self.deleted: list[str] = []
        self.version = 0
        self.refused = ""
        """Why no Job is taken; empty: they are."""
        self.tried = 0

    def check_lease(self) -> None:
        pass

    async def create(self, resource: Any, namespace: str | None, body: Any) -> Any:
        self.tried += 1
        if self.refused:
            raise Refused(403, self.refused)
        return self.put({**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"]}})

    async def merge(self, resource: Any, namespace: str | None, name: str, change: Any) -> Any:
        live = copy.deepcopy(self.jobs()[name])
        live["metadata"].setdefault("annotations", {}).update(change["metadata"].get("annotations", {}))
        return self.put(live)

    async def delete(self, resource: Any, namespace: str | None, name: str, uid: str) -> dict[str, Any]:
        self.deleted.append(name)
        self.forget(name)
        return {}

    def forget(self, name: str) -> None:
        """It is gone, as a Job some time after its end."""
        self.caches.informers[resources.JOBS].store.event("DELETED", self.jobs()[name])

    def put(self, job: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        managers = [{"manager": MANAGER, "operation": "Apply"}]
        job["metadata"] |= {"resourceVersion": str(self.version), "managedFields": managers}
        self.caches.informers[resources.JOBS].store.event("MODIFIED", job)
        return job

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job["metadata"]["name"]: job for job in self.caches.all(resources.JOBS)}


def two_jobs(api: Api) -> tuple[str, str]:
    """One has brought the files; the other finds no node."""
    first = make_download_job("team-a", REVISION, PLAIN, RUNTIME)
    name = first["metadata"]["name"]
    digest = pod_digest(make_download_job("team-a", REVISION, ELSEWHERE, RUNTIME))
    other = make_download_job("team-a", REVISION, ELSEWHERE, RUNTIME, name=f"{name}-{digest}")
    for job, status in ((first, DONE), (other, {})):
        job["metadata"]["uid"] = job["metadata"]["name"]
        api.put({**copy.deepcopy(job), "status": status})
    return name, f"{name}-{digest}"


class Heard(EventWriter):
    """What was told of which Job."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []

    def write_of_job(self, job: dict[str, Any], event: Event) -> None:
        self.events.append((job["metadata"]["name"], event))


def sweeps(api: Api, *minutes: float) -> list[tuple[str, Event]]:
    """Each by an operator of its own, which knows nothing but what the API server does. What they told."""
    heard = Heard()
    for minute in minutes:
        janitor = Janitor(api, api.caches, heard, dict, WEEK)
        asyncio.run(janitor.sweep(NOW + timedelta(minutes=minute)))
    return heard.events


def test_a_job_that_brought_nothing_goes_and_the_model_stays() -> None:
    api = Api()
    first, other = two_jobs(api)
    sweeps(api, 0, 2, 3, 4, 5)
    assert api.deleted == [other]
    assert set(api.jobs()) == {first}, "and nothing is there that removes files"


def test_the_only_job_of_files_whose_nodes_do_not_exist_goes_in_the_end() -> None:
    """Its removal finds no node either: the API server ends it, and whoever wants the files begins anew."""
    api = Api()
    only = make_download_job("team-a", REVISION, ELSEWHERE, RUNTIME)
    name = only["metadata"]["name"]
    only["metadata"]["uid"] = name
    api.put({**copy.deepcopy(only), "status": {}})
    sweeps(api, 0, 2, 3)
    removal = api.jobs()[name + REMOVE_SUFFIX]
    assert removal["spec"]["activeDeadlineSeconds"] == 600
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    api.put({**copy.deepcopy(removal), "status": {"conditions": [failed]}})
    [(job, told)] = sweeps(api, 13, 14)
    assert api.deleted == [name]
    assert (job, told.reason, told.type) == (name, "ModelNotRemoved", "Warning")
    assert "does not try again" in told.message


def test_after_the_retention_the_files_go_with_the_job_that_brought_them() -> None:
    api = Api()
    first, _ = two_jobs(api)
    week = WEEK / 60
    sweeps(api, 0, 2, 3, week + 1, week + 2)
    assert set(api.jobs()) == {first, first + REMOVE_SUFFIX}
    api.put({**copy.deepcopy(api.jobs()[first + REMOVE_SUFFIX]), "status": DONE})
    sweeps(api, week + 3)
    assert first not in api.jobs()


READ_ONLY = "the volume at /models/cache cannot be written by user 65532: Read-only file system"


def to_be_removed(api: Api) -> str:
    """The name of the Job that is to delete the files of the only download."""
    job = make_download_job("team-a", REVISION, PLAIN, RUNTIME)
    job["metadata"]["uid"] = job["metadata"]["name"]
    job["metadata"]["annotations"] |= {
        "llmendpoint.io/unused-since": (NOW - 2 * timedelta(seconds=WEEK)).isoformat(),
        "llmendpoint.io/removing": "true",
    }
    api.put({**copy.deepcopy(job), "status": DONE})
    return str(job["metadata"]["name"]) + REMOVE_SUFFIX


def fail(api: Api, name: str) -> None:
    """The Job's last pod found the volume read-only."""
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "it ended"}
    job = copy.deepcopy(api.jobs()[name])
    job["metadata"]["uid"] = f"{name}-{api.version}"
    pod = ended_pod(f"{name}-x", 2, READ_ONLY)
    pod["metadata"] |= {"namespace": "team-a", "uid": "p", "labels": {MODEL_JOB_LABEL: name}}
    pod["metadata"]["resourceVersion"] = str(api.version)
    api.caches.informers[resources.PODS].store.event("MODIFIED", pod)
    api.put({**job, "status": {"conditions": [failed]}})


def test_a_removal_that_fails_is_tried_again_after_ever_longer_pauses() -> None:
    """Whoever leads, and whether the API server forgets the failed Job meanwhile or not."""
    api = Api()
    name = to_be_removed(api)
    begun: list[int] = []
    for minute in range(6 * 60):
        sweeps(api, minute, minute + 0.5)
        if name not in api.jobs():
            continue
        if "conditions" not in api.jobs()[name].get("status", {}):
            begun.append(minute)
            fail(api, name)
            sweeps(api, minute + 0.6)
        elif len(begun) % 2:
            api.forget(name)
    pauses = [later - before for before, later in itertools.pairwise(begun)]
    assert pauses[:4] == pytest.approx([5, 10, 20, 40], abs=1)
    assert pauses[4:] == pytest.approx([60] * len(pauses[4:]), abs=1)
    assert len(pauses) >= 6


def test_each_failure_of_a_removal_is_told_once_with_its_cause() -> None:
    api = Api()
    name = to_be_removed(api)
    sweeps(api, 0)
    fail(api, name)
    [(job, told)] = sweeps(api, 1, 2, 3)
    assert job + REMOVE_SUFFIX == name
    assert (told.reason, told.type) == ("ModelNotRemoved", "Warning")
    assert READ_ONLY in told.message
    assert "cannot be deleted from claim cache" in told.message
    assert f"delete Job {job}" in told.message
    assert "attempt 1, the next one in 5 min" in told.message
    fail(api, name)
    [(_, told)] = sweeps(api, 7)
    assert "attempt 2, the next one in 10 min" in told.message


def test_who_waits_for_files_that_cannot_be_deleted_is_told_why() -> None:
    api = Api()
    name = to_be_removed(api)
    sweeps(api, 0)
    record = api.jobs()[name.removesuffix(REMOVE_SUFFIX)]
    assert removal_cause(record) is None
    fail(api, name)
    sweeps(api, 1)
    cause = removal_cause(api.jobs()[name.removesuffix(REMOVE_SUFFIX)])
    assert cause is not None
    assert cause.reason == "ModelNotRemoved"
    assert READ_ONLY in cause.message
    assert not cause.expected


def test_a_removal_that_the_api_server_refuses_pauses_and_is_told_too() -> None:
    api = Api()
    to_be_removed(api)
    api.refused = "exceeded quota: jobs, requested: count/jobs.batch=1"
    [(_, told)] = sweeps(api, 0, 1, 2, 3, 4)
    assert "exceeded quota" in told.message
    assert api.tried == 1
    assert len(sweeps(api, 6)) == 1
    api.refused = ""
    assert sweeps(api, 10, 17) == []
    assert len(api.jobs()) == 2, "and once it is taken, the next Job is there"


def test_a_record_on_which_somebody_wrote_holds_nothing_up() -> None:
    for text in ("", "[]", "{", '{"count": 1}', '{"count": "9", "at": "soon", "job": "", "said": ""}',
                 '{"count": 1, "at": "2999-01-01T00:00:00+00:00", "job": "", "said": ""}',
                 '{"count": 1, "at": "2026-01-01T00:00:00", "job": "", "said": ""}'):  # fmt: skip
        api = Api()
        name = to_be_removed(api)
        record = copy.deepcopy(api.jobs()[name.removesuffix(REMOVE_SUFFIX)])
        record["metadata"]["annotations"][FAILED_ANNOTATION] = text
        api.put(record)
        sweeps(api, 0)
        fail(api, name)
        assert len(sweeps(api, 1)) <= 1


def test_a_cause_is_short_and_without_credentials() -> None:
    record = make_download_job("team-a", REVISION, PLAIN, RUNTIME)
    failure = next_failure(record, "uid", "x" * 9999 + " token=hf_abcdefghijklmnop", NOW)
    mark = failed_mark(failure)["metadata"]["annotations"]
    assert len(mark[FAILED_ANNOTATION]) < 1024
    failure = next_failure(record, "uid", "token=hf_abcdefghijklmnop", NOW)
    assert "hf_abc" not in failed_mark(failure)["metadata"]["annotations"][FAILED_ANNOTATION]
