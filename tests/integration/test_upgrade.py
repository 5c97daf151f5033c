"""Upgrades: a pod that serves is not touched by a new operator, a new pod template or an edited runtime."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core import deployment, plan, revision
from llmendpoint_operator.core.rollout import target
from llmendpoint_operator.kube.resources import CONTROLLER_REVISIONS, PODS
from tests.cluster import Cluster
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_stage import RUNTIME, Stage, Stages

pytestmark = pytest.mark.integration

Json = dict[str, Any]


NEXT = revision.TEMPLATE_VERSION + 1


def next_template(owner: Any, of: revision.Revision, replicas: int) -> Json:
    """What the next version of the operator renders: revisions that it makes itself have one more variable."""
    manifest = deployment.make_deployment(owner, of, replicas)
    if of.template_version == NEXT:
        manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "NEW", "value": "1"}]
    return manifest


def install_next_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another template for new revisions; those before it are still known."""
    monkeypatch.setattr(target, "TEMPLATE_VERSION", NEXT)
    monkeypatch.setattr(revision, "KNOWN_TEMPLATES", revision.KNOWN_TEMPLATES | {NEXT})
    monkeypatch.setattr(plan, "make_deployment", next_template)


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
