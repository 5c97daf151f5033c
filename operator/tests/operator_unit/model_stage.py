"""A cluster in memory in which Jobs that run llmendpoint-model end as a test says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.plan import Plan, make_plan
from llmendpoint_operator.core.endpoint.snapshot import Snapshot
from llmendpoint_operator.core.models.files import Delivery, delivery, model_files, resolve_job_name
from llmendpoint_operator.core.models.tasks import Awaited, identity_of, read_task
from llmendpoint_operator.core.rollout.target import unresolved

from .fake_cluster import AFTER_ALL, NOW, FakeCluster

REVISION = "4" * 40
ENDED = "2026-01-01T00:00:00Z"
RUNTIME = LLMRuntimeSpec.model_validate(
    {
        "image": "engine:1",
        "modelImage": "model:1",
        "args": [
            {"value": "--model=$(model.path)"},
            {"value": "--revision=$(model.revision)", "when": "model.revision"},
        ],
    }
)


@dataclass
class ModelCluster(FakeCluster):
    """`job_pods` by Job. Jobs have the conditions that `end` gave them."""

    runtime: LLMRuntimeSpec | None = RUNTIME
    job_pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def snapshot(self, now: datetime = AFTER_ALL) -> Snapshot:
        """As the rim completes it; every source is resolved by a Job here."""
        plain = super().snapshot(now)
        waiting = unresolved(plain)
        if waiting is None:
            return plain
        hash_, spec = waiting
        resolve = self.task(resolve_job_name("uid-1", hash_))
        identity, task = identity_of(resolve), resolve
        if identity is not None and identity.commit and delivery(spec.model) is Delivery.JOB:
            task = self.task(model_files(spec.model, identity.commit).job_name)
        return replace(plain, observed=replace(plain.observed, awaited=Awaited(hash_, identity, task)))

    def task(self, name: str) -> Any:
        return read_task(self.objects.get(("Job", name)), self.job_pods.get(name, []))

    def at(self, now: datetime) -> Plan:
        return make_plan(self.snapshot(now), now)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """By what they do."""
        return {
            job["metadata"]["labels"]["app.kubernetes.io/component"]: job
            for (kind, _), job in self.objects.items()
            if kind == "Job"
        }

    def end(self, component: str, exit_code: int = 0, message: str = "", failed: bool | None = None) -> None:
        """The Job's pod ended, and with it the Job (`failed`: unless it has attempts left)."""
        job = self.jobs()[component]
        name = job["metadata"]["name"]
        self.job_pods[name] = [ended_pod(f"{name}-1", exit_code, message)]
        kind = "Complete" if exit_code == 0 else "Failed"
        if failed is not False:
            conditions = [
                {"type": kind, "status": "True", "lastTransitionTime": ENDED, "message": "it ended"}
            ]
            job["status"] = {"conditions": conditions}

    def resolved(self) -> None:
        """Until the first Job said what the source is."""
        self.reconcile(NOW)
        self.end("model-resolve", message=f'{{"revision": "{REVISION}"}}')
        self.reconcile(NOW)


def ended_pod(name: str, exit_code: int, message: str = "", container: str = "model") -> dict[str, Any]:
    state = {"exitCode": exit_code, "message": message, "finishedAt": ENDED}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": container, "image": "model:1"}]},
        "status": {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{"name": container, "state": {"terminated": state}}],
        },
    }
