"""Two Jobs brought the same files: sweep after sweep, until nothing changes any more."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from typing import Any

from llmendpoint_operator.core.models.jobs import REMOVE_SUFFIX, make_download_job, pod_digest
from llmendpoint_operator.core.names import MANAGER
from llmendpoint_operator.janitor import Janitor
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.client import KubeApi

from .fake_cluster import NOW
from .model_stage import REVISION, RUNTIME
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

    def check_lease(self) -> None:
        pass

    async def create(self, resource: Any, namespace: str | None, body: Any) -> Any:
        return self.put({**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"]}})

    async def merge(self, resource: Any, namespace: str | None, name: str, change: Any) -> Any:
        live = copy.deepcopy(self.jobs()[name])
        live["metadata"].setdefault("annotations", {}).update(change["metadata"].get("annotations", {}))
        return self.put(live)

    async def delete(self, resource: Any, namespace: str | None, name: str, uid: str) -> dict[str, Any]:
        self.deleted.append(name)
        self.caches.informers[resources.JOBS].store.event("DELETED", self.jobs()[name])
        return {}

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


def sweeps(api: Api, *minutes: float) -> None:
    janitor = Janitor(api, api.caches, dict, WEEK)
    for minute in minutes:
        asyncio.run(janitor.sweep(NOW + timedelta(minutes=minute)))


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
    sweeps(api, 13, 14)
    assert api.deleted == [name]


def test_after_the_retention_the_files_go_with_the_job_that_brought_them() -> None:
    api = Api()
    first, _ = two_jobs(api)
    week = WEEK / 60
    sweeps(api, 0, 2, 3, week + 1, week + 2)
    assert set(api.jobs()) == {first, first + REMOVE_SUFFIX}
    api.put({**copy.deepcopy(api.jobs()[first + REMOVE_SUFFIX]), "status": DONE})
    sweeps(api, week + 3)
    assert first not in api.jobs()
