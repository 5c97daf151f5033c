"""docs/operate/security.md: every verb of the operator's role is used, and no other is asked for: a whole life, from the audit log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_operator.core.names import MANAGER
from llmendpoint_operator.core.scaling.scaledown import COST, COST_ANNOTATION
from llmendpoint_operator.kube.resources import PERMISSIONS
from tests.cluster import Cluster, wait_for
from tests.demo.product import CHART
from tests.integration.installed import install
from tests.integration.model_jobs import ModelJobs
from tests.integration.namespace import Namespace
from tests.integration.test_chart_rbac import refusals, running, token_kubeconfig

pytestmark = pytest.mark.integration

SYSTEM = "llm-verbs"
USER = f"system:serviceaccount:{SYSTEM}:llmendpoint-operator"
UNSEEN: dict[tuple[str, str], set[str]] = {
    # Asked by the admission plugin OwnerReferencesPermissionEnforcement, not by a request.
    ("llmendpoint.io", "llmendpoints/finalizers"): {"update"},
    # Asked by the operator of the version before, which leads until the new one takes over. Goes with the next version.
    ("llmendpoint.io", "llmendpoints/status"): {"patch"},
    # This cluster has no KEDA; test_keda.py is where its objects are written.
    ("keda.sh", "scaledobjects"): {"list", "watch", "create", "patch", "delete"},
}


@pytest.fixture(scope="module")
def installed(control_plane: Cluster) -> Iterator[Cluster]:
    """The chart, its roles and bounds among it. Nothing runs its Deployments."""
    install(control_plane)
    control_plane.helm("upgrade", "--install", "verbs", str(CHART), "-n", SYSTEM, "--create-namespace", "--set", "runtime.install=false,gateway.replicas=0,operator.replicas=0")  # fmt: skip
    yield control_plane
    control_plane.helm("uninstall", "verbs", "-n", SYSTEM)


def used(cluster: Cluster) -> dict[tuple[str, str], set[str]]:
    """Verbs by group and resource. A server-side apply that makes an object needs `create`, too."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in cluster.own.audit_log.read_text().splitlines():
        event = json.loads(line)
        what = event.get("objectRef", {})
        if event["user"]["username"] != USER or "resource" not in what:
            continue
        resource = "/".join(part for part in (what["resource"], what.get("subresource")) if part)
        verbs = found[what.get("apiGroup", ""), resource]
        verbs.add(event["verb"])
        if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
            verbs.add("create")
    return dict(found)


def test_every_verb_of_the_role_is_used_and_no_other_is_asked_for(installed: Cluster, tmp_path: Path) -> None:
    config = token_kubeconfig(installed, "llmendpoint-operator", tmp_path, SYSTEM)
    arguments = (
        "--kubeconfig",
        str(config),
        "--model-image",
        "localhost/model:1",
        "--cache-retention-seconds",
        "1",
    )
    namespace = Namespace(installed)
    try:
        with running("llmendpoint_operator", tmp_path, *arguments) as operator:
            wait_for("the operator is ready", lambda: operator.answers("/readyz"), 60)
            a_life(namespace)
            a_scaler_comes_and_goes(namespace)
            a_model_comes_and_goes(namespace, tmp_path)
    finally:
        installed.kubectl("delete", "namespace", namespace.name, "--wait=false")
    assert refusals(operator.log) == []
    granted = {key: set(verbs) for key, verbs in PERMISSIONS.items()}
    found = used(installed)
    unused = {key: left for key, verbs in granted.items() if (left := verbs - found.get(key, set()) - UNSEEN.get(key, set()))}  # fmt: skip
    assert unused == {}
    more = {key: left for key, verbs in found.items() if (left := verbs - granted.get(key, set()))}
    assert more == {}


def a_life(namespace: Namespace) -> None:
    """Made, put back, changed, switched, scaled down, pruned."""
    namespace.apply(replicas=2, revisionHistoryLimit=0)
    first = namespace.bring_up(2)
    for _ in range(2):
        spoil(namespace, "serviceaccount", "chat", {"automountServiceAccountToken": True})
    spoil(namespace, "controllerrevision", f"chat-{first}", {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}})  # fmt: skip
    namespace.apply(replicas=2, revisionHistoryLimit=0, security={"allowedClients": [{"podSelector": {}}]})
    namespace.apply(replicas=2, revisionHistoryLimit=0, engine={"maxNumSeqs": 4})
    second = namespace.bring_up(2)
    chosen_by_an_operator_before(namespace, namespace.pods(second, 2)[0])
    wait_for("the old revision is gone", lambda: len(namespace.items("controllerrevisions")) == 1, 60)
    namespace.apply(replicas=1, revisionHistoryLimit=0, engine={"maxNumSeqs": 4})
    wait_for("one replica", lambda: list(namespace.replicas().values()) == [1], 60)


def chosen_by_an_operator_before(namespace: Namespace, name: str) -> None:
    """A pod that was to go when its operator ended, and now stays: its annotation is taken off."""
    metadata = {"name": name, "namespace": namespace.name, "annotations": {COST_ANNOTATION: COST}}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    namespace.cluster.kubectl("apply", "--server-side", f"--field-manager={MANAGER}", "-f", "-", stdin=pod)
    wait_for(
        "the annotation is gone",
        lambda: COST_ANNOTATION not in namespace.get("pod", name)["metadata"].get("annotations", {}),
        30,
    )


def spoil(namespace: Namespace, kind: str, name: str, change: dict[str, Any]) -> None:
    """Somebody edits a child; until it is as it was."""
    before = namespace.get(kind, name)["metadata"]["resourceVersion"]
    said = namespace.cluster.kubectl("patch", kind, name, "-n", namespace.name, "--type=merge", "-p", json.dumps(change), "-o", "json")  # fmt: skip
    spoiled = json.loads(said)["metadata"]["resourceVersion"]

    def restored() -> bool:
        found = namespace.get(kind, name)
        written = found["metadata"]["resourceVersion"] not in (before, spoiled)
        return written and found["metadata"]["labels"]["app.kubernetes.io/name"] == "llmendpoint"

    wait_for(f"{kind} {name} is put back", restored, 30)


def a_scaler_comes_and_goes(namespace: Namespace) -> None:
    def scalers() -> list[int]:
        return [item["spec"]["maxReplicas"] for item in namespace.items("horizontalpodautoscalers")]

    for most, there in ((3, [3]), (4, [4])):
        namespace.apply("scaled", autoscaling={"provider": "hpa", "maxReplicas": most})
        wait_for(f"an autoscaler to {most}", lambda there=there: scalers() == there, 30)  # type: ignore[misc]
    namespace.apply("scaled")
    wait_for("no autoscaler", lambda: scalers() == [], 30)


def a_model_comes_and_goes(namespace: Namespace, folder: Path) -> None:
    jobs = ModelJobs(namespace, folder)
    answer = json.dumps({"revision": "4" * 40})
    source = {"source": "s3://models/demo", "cache": {"claimName": "c"}, "credentials": {"secretName": "s"}}
    namespace.apply("cached", model=source)
    for component in ("model-resolve", "model-download"):
        end(jobs, component, answer)
    wait_for("its pods", lambda: any(name.startswith("cached-") for name in namespace.replicas()), 30)
    namespace.cluster.kubectl("delete", "llmendpoint", "cached", "-n", namespace.name)
    end(jobs, "model-remove", answer, limit_s=120)
    wait_for("the record is gone", lambda: not jobs.named("model-download"), 60)


def end(jobs: ModelJobs, component: str, answer: str, limit_s: float = 30) -> None:
    """Its pod has done what it was for."""
    jobs.namespace.cluster.wait_for(f"Job {component}", lambda: jobs.named(component), limit_s)
    pod = jobs.pod(component)["metadata"]["name"]
    state = {"terminated": {"exitCode": 0, "message": answer, "reason": "Completed"}}
    status = {
        "name": "model",
        "image": "i",
        "imageID": "i",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    jobs.namespace.write_pod_status(pod, {"phase": "Succeeded", "containerStatuses": [status]})
