"""docs/concepts/rollouts.md: a new operator, a new pod template or an edited LLMRuntime restarts no pod that serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_operator.core.names import MANAGER
from llmendpoint_operator.core.pods import children, deployment, revision
from llmendpoint_operator.core.pods.builders import make_service_account
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.rollout import target
from llmendpoint_operator.kube.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINTS,
    PODS,
    SERVICE_ACCOUNTS,
)
from tests.cluster import Cluster
from tests.integration.mortal_operator import Operator
from tests.integration.played_pods import is_ready
from tests.integration.rollout_players import NAME
from tests.integration.rollout_stage import RUNTIME, Stage, Stages

pytestmark = pytest.mark.integration

Json = dict[str, Any]


NEXT = revision.TEMPLATE_VERSION + 1


def next_template(owner: Any, of: revision.Revision, replicas: int, deadline: int | None = None) -> Json:
    """What the next version of the operator renders: revisions that it makes itself have one more variable."""
    manifest = deployment.make_deployment(owner, of, replicas, deadline)
    if of.template_version == NEXT:
        manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "NEW", "value": "1"}]
    return manifest


def install_next_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another template for new revisions; those before it are still known."""
    monkeypatch.setattr(target, "TEMPLATE_VERSION", NEXT)
    monkeypatch.setattr(revision, "KNOWN_TEMPLATES", revision.KNOWN_TEMPLATES | {NEXT})
    monkeypatch.setattr(children, "make_deployment", next_template)


LANDED = Path(__file__).parent / "landed_revision.json"
"""Written by the operator before records held every value: namespace team-a, uid uid-1, engines' port 45678."""


async def as_landed(stage: Stage) -> tuple[Json, Json]:
    """What the landed operator left of the stage's endpoint: its record, its Deployment, and its status."""
    namespace, uid = stage.endpoint["metadata"]["namespace"], stage.endpoint["metadata"]["uid"]
    text = LANDED.read_text().replace("team-a", namespace).replace("uid-1", uid)
    found = json.loads(text.replace("45678", str(stage.engine_port)))
    await stage.api.apply(SERVICE_ACCOUNTS, make_service_account(Owner(namespace, NAME, uid)))
    record = await stage.api.apply(CONTROLLER_REVISIONS, found["record"])
    deployment = await stage.api.apply(DEPLOYMENTS, found["deployment"])
    revision_ = record["metadata"]["labels"]["llmendpoint.io/revision"]
    await stage.until(
        "the pods of before", lambda: sum(map(is_ready, stage._pods)) == 2 and len(stage._pods) == 2
    )
    status = {
        "activeRevision": revision_, "targetRevision": revision_, "switchedAt": "2026-01-01T00:00:00.000Z",
        "traffic": {"epoch": 7, "weights": [{"revision": revision_, "weight": 100}]},
        "rollout": {"state": "Idle", "blue": revision_},
    }  # fmt: skip
    kind = {"apiVersion": ENDPOINTS.api_version, "kind": ENDPOINTS.kind}
    metadata = {"name": NAME, "namespace": namespace}
    written = json.dumps({**kind, "metadata": metadata, "status": status})
    how = ["--server-side", "--subresource=status", f"--field-manager={MANAGER}", "--force-conflicts"]
    await asyncio.to_thread(stage.cluster.kubectl, "apply", *how, "-f", "-", stdin=written)
    return record, deployment


async def test_revisions_of_the_landed_version_go_on_and_their_records_stay_as_they_are(
    stages: Stages,
) -> None:
    async with stages.stage() as stage:
        await stage.edit(1, replicas=2)
        record, deployment = await as_landed(stage)
        before = set(await pods(stage))
        operator = await Operator(stage).start()
        await stage.until("the first look", lambda: stage.condition("Ready").get("status") == "True")
        await stage.edit(1, replicas=2, progressDeadlineSeconds=900)
        await stage.until(
            "the edit to be seen",
            lambda: stage.status.get("observedGeneration") == stage.endpoint["metadata"]["generation"],
        )
        assert await stage.at_rest() == record["metadata"]["labels"]["llmendpoint.io/revision"]
        await asyncio.sleep(2)
        assert set(await pods(stage)) == before, "a pod that served was replaced"
        [kept] = (await stage.api.list(CONTROLLER_REVISIONS, stage.namespace))["items"]
        assert kept["data"] == record["data"]
        [live] = (await stage.api.list(DEPLOYMENTS, stage.namespace))["items"]
        assert live["spec"]["template"] == deployment["spec"]["template"]
        assert live["spec"]["progressDeadlineSeconds"] == 900

        await stage.edit(2, replicas=2)
        await stage.at_rest()
        records = (await stage.api.list(CONTROLLER_REVISIONS, stage.namespace))["items"]
        assert sorted(r["data"]["templateVersion"] for r in records) == [2, 3]
        assert stage.lost == stage.failed == 0
        assert operator.api.writes > 0


async def pods(stage: Stage) -> dict[str, Json]:
    """Engine pods by uid."""
    found = (await stage.api.list(PODS, stage.namespace, "llmendpoint.io/endpoint"))["items"]
    return {pod["metadata"]["uid"]: pod for pod in found}


async def test_a_new_operator_with_another_template_and_an_edited_runtime_restart_no_pod(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_runtime(stages.cluster, readiness="Generation")
    async with stages.stage() as stage:
        first = await Operator(stage, probe_image="probe:1").start()
        await stage.edit(1, replicas=2)
        old = await stage.at_rest()
        before = set(await pods(stage))
        await first.stop()

        edit_runtime(stages.cluster, readiness="Generation", image="localhost/engine:2")
        install_next_operator(monkeypatch)
        second = await Operator(stage, probe_image="probe:2").start()
        await stage.edit(1, replicas=3)
        await stage.until("the third replica", lambda: stage.status.get("readyReplicas") == 3)
        assert before < set(await pods(stage)), "a pod that served was replaced"
        assert images(await pods(stage)) == {("localhost/engine:1", "probe:1", False)}

        await stage.edit(2, replicas=2)
        new = await stage.at_rest()
        assert images(await pods(stage)) == {("localhost/engine:2", "probe:2", True)}
        records = (await stage.api.list(CONTROLLER_REVISIONS, stage.namespace))["items"]
        versions = {r["metadata"]["name"].rpartition("-")[2]: r["data"]["templateVersion"] for r in records}
        assert versions == {old: NEXT - 1, new: NEXT}
        assert second.api.writes > 0


def images(found: dict[str, Json]) -> set[tuple[str, str, bool]]:
    """Engine image, sidecar image, and whether the pod is of the next template."""
    specs = [pod["spec"] for pod in found.values()]
    return {
        (s["containers"][0]["image"], s["initContainers"][0]["image"], "env" in s["containers"][0])
        for s in specs
    }


def edit_runtime(cluster: Cluster, **fields: Any) -> None:
    """As an administrator does, or a new version of the chart."""
    runtime = cluster.get("llmruntime", RUNTIME)
    kept = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "metadata": {"name": RUNTIME}}
    cluster.apply({**kept, "spec": {**runtime["spec"], **fields}})
