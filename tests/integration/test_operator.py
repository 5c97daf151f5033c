"""docs/concepts/architecture.md: the operator makes, repairs and removes children, and writes nothing in a steady state.

The API server and the controller manager are real; the test plays the kubelet.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.store import Informer
from tests.cluster import Cluster
from tests.integration.installed import RUNTIME, endpoint, install
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

CHILD_KINDS = "deployments", "services", "serviceaccounts", "controllerrevisions", "pods"


def selected(namespace: Namespace) -> str:
    return str(namespace.get("service", "chat")["spec"]["selector"]["llmendpoint.io/revision"])


def test_apply_makes_the_children_and_ready_pods_make_it_ready(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(replicas=2)
    assert namespace.wait_condition("Ready", "False")["reason"] in ("Starting", "Unschedulable")
    namespace.cluster.wait_for("a Service of no pods", lambda: selected(namespace) == "none", 10)
    revision = namespace.bring_up(2)
    namespace.wait_condition("Ready", "True", "AllReplicasReady")
    assert selected(namespace) == revision
    assert namespace.replicas() == {f"chat-{revision}": 2}
    assert {item["metadata"]["name"] for item in namespace.items("services")} == {"chat", f"chat-{revision}"}
    status = namespace.status()
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert status["url"] == f"http://chat.{namespace.name}.svc/v1"
    assert status["selector"] == f"llmendpoint.io/endpoint=chat,llmendpoint.io/revision={revision}"
    namespace.cluster.kubectl(
        "wait", "--for=condition=Ready", "llm/chat", "-n", namespace.name, "--timeout=5s"
    )


def test_the_metrics_show_each_endpoint_until_it_is_deleted(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    def shown() -> set[str]:
        lines = operator.page("/metrics").splitlines()
        start, own = "llmendpoint_operator_", f'namespace="{namespace.name}"'
        return {line.removeprefix(start).replace(own, "here") for line in lines if own in line}

    namespace.apply(replicas=2)
    starting = {
        'condition{llmendpoint="chat",here,type="Ready"} 0.0',
        'replicas_wanted{llmendpoint="chat",here} 2.0',
    }
    namespace.cluster.wait_for("it to be shown", lambda: starting <= shown(), 10)
    revision = namespace.bring_up(2)
    namespace.wait_condition("Ready", "True")
    ready = {
        'condition{llmendpoint="chat",here,type="Ready"} 1.0',
        'replicas_ready{llmendpoint="chat",here} 2.0',
        f'revision_info{{llmendpoint="chat",here,revision="{revision}",role="active"}} 1.0',
        f'traffic_weight{{llmendpoint="chat",here,revision="{revision}"}} 100.0',
    }
    namespace.cluster.wait_for("it to be ready in the metrics", lambda: ready <= shown(), 10)
    namespace.cluster.kubectl("delete", "llm/chat", "-n", namespace.name)
    namespace.cluster.wait_for("nothing to be left of it", lambda: shown() == set(), 10)


def test_an_edit_makes_a_revision_and_a_revert_reuses_the_old_one(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    first = namespace.bring_up(1)
    namespace.apply(engine={"maxNumSeqs": 4})
    second = namespace.target()
    assert second != first
    namespace.pods(second, 1)
    assert namespace.status()["activeRevision"] == first
    assert namespace.replicas() == {f"chat-{first}": 1, f"chat-{second}": 1}
    namespace.bring_up(1)
    namespace.cluster.wait_for(
        "the old revision to go to zero", lambda: namespace.replicas()[f"chat-{first}"] == 0, 30
    )
    before = {
        (kind, i["metadata"]["uid"])
        for kind in ("deployments", "controllerrevisions")
        for i in namespace.items(kind)
    }
    namespace.apply()
    assert namespace.bring_up(1) == first
    after = {
        (kind, i["metadata"]["uid"])
        for kind in ("deployments", "controllerrevisions")
        for i in namespace.items(kind)
    }
    assert after == before, "a revert makes no new Deployment and no new ControllerRevision"
    assert selected(namespace) == first
    for reason in ("RevisionCreated", "RevisionActivated", "RevisionReused", "RevisionScaled"):
        namespace.wait_events(reason)


def test_old_revisions_beyond_the_limit_are_deleted(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(revisionHistoryLimit=0)
    namespace.bring_up(1)
    namespace.apply(revisionHistoryLimit=0, engine={"maxNumSeqs": 4})
    second = f"chat-{namespace.bring_up(1)}"

    def names(kind: str) -> set[str]:
        return {item["metadata"]["name"] for item in namespace.items(kind)}

    namespace.cluster.wait_for("the old record to go", lambda: names("controllerrevisions") == {second}, 30)
    namespace.cluster.wait_for("the old Deployment to go", lambda: names("deployments") == {second}, 30)
    assert names("services") == {"chat", second}


def test_kubectl_scale_changes_pods_and_makes_no_revision(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    revision = namespace.bring_up(1)
    namespace.cluster.kubectl("scale", "llm/chat", "--replicas=3", "-n", namespace.name)
    namespace.pods(revision, 3)
    namespace.cluster.kubectl("scale", "llm/chat", "--replicas=0", "-n", namespace.name)
    namespace.wait_condition("Ready", "True", "ScaledToZero")
    assert namespace.replicas() == {f"chat-{revision}": 0}


def test_delete_leaves_nothing(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.bring_up(1)
    namespace.cluster.kubectl(
        "delete", "llm/chat", "-n", namespace.name, "--cascade=foreground", "--timeout=30s"
    )

    def left() -> list[str]:
        return [
            f"{kind}/{item['metadata']['name']}" for kind in CHILD_KINDS for item in namespace.items(kind)
        ]

    namespace.cluster.wait_for("nothing to be left", lambda: not left(), 30)
    operator.settle()
    assert left() == []


def test_a_restarted_operator_writes_nothing(
    control_plane: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    for name in ("chat", "other"):
        namespace.apply(name)
        namespace.bring_up(1, name)
    namespace.apply("pending", resources={"accelerator": {"kind": "example.com/none"}})
    namespace.wait_condition("Ready", "False", name="pending")
    operator.settle()

    def versions() -> dict[str, str]:
        kinds = ("llmendpoints", "deployments", "services", "serviceaccounts", "controllerrevisions")
        return {
            i["metadata"]["uid"]: i["metadata"]["resourceVersion"]
            for kind in kinds
            for i in namespace.items(kind)
        }

    before = versions()
    assert operator.stop() == 0
    operator.start()
    operator.settle()
    assert operator.reconciles() >= 3
    assert operator.writes() == 0
    assert versions() == before


def test_what_a_hand_changed_is_put_back(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(runtime={"name": RUNTIME, "args": ["--note=<a> & b: c, ü"]})
    revision = namespace.bring_up(1)
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]
    patches = {
        f"deployment/chat-{revision}": [*image, {"op": "replace", "path": "/spec/replicas", "value": 5}],
        "service/chat": [
            {"op": "replace", "path": "/spec/selector/llmendpoint.io~1revision", "value": "other"}
        ],
        f"controllerrevision/chat-{revision}": [
            {"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1managed-by"}
        ],
    }
    for target, patch in patches.items():
        namespace.cluster.kubectl(
            "patch", target, "-n", namespace.name, "--type=json", "-p", json.dumps(patch)
        )

    def restored() -> bool:
        deployment = namespace.get("deployment", f"chat-{revision}")["spec"]
        record = namespace.get("controllerrevision", f"chat-{revision}")
        return (
            deployment["replicas"] == 1
            and deployment["template"]["spec"]["containers"][0]["image"] == "localhost/engine:1"
            and selected(namespace) == revision
            and "app.kubernetes.io/managed-by" in record["metadata"]["labels"]
        )

    namespace.cluster.wait_for("all of it to be put back", restored, 30)
    namespace.cluster.kubectl("delete", "deployment", f"chat-{revision}", "-n", namespace.name)
    namespace.cluster.wait_for(
        "the Deployment to be made again", lambda: namespace.replicas() == {f"chat-{revision}": 1}, 30
    )


def test_the_users_object_is_never_touched(operator: OperatorProcess, namespace: Namespace) -> None:
    def user_part() -> str:
        item = namespace.get("llmendpoint", "chat")
        metadata = {
            k: v for k, v in item["metadata"].items() if k not in ("resourceVersion", "managedFields")
        }
        return json.dumps({"metadata": metadata, "spec": item["spec"]}, sort_keys=True)

    namespace.apply(replicas=2)
    before = user_part()
    namespace.bring_up(2)
    operator.settle()
    assert user_part() == before
    assert "finalizers" not in before
    namespace.apply(replicas=2, engine={"maxNumSeqs": 2})
    edited = user_part()
    namespace.bring_up(2)
    operator.settle()
    assert user_part() == edited


def test_a_missing_runtime_is_named_and_found_when_it_comes(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    name = f"late-{namespace.name}"
    namespace.apply(runtime={"name": name})
    assert name in namespace.wait_condition("Stalled", "True", "RuntimeNotFound")["message"]
    runtime = namespace.cluster.get("llmruntime", "integration")
    namespace.cluster.apply(
        {**{k: runtime[k] for k in ("apiVersion", "kind", "spec")}, "metadata": {"name": name}}
    )
    namespace.bring_up(1)
    namespace.cluster.kubectl("delete", "llmruntime", name)


def test_a_write_that_the_api_server_refuses_is_reported_and_others_go_on(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    name = f"broken-{namespace.name}"
    spec = {"image": "x:1", "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}
    runtime = {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMRuntime",
        "metadata": {"name": name},
        "spec": spec,
    }
    namespace.cluster.apply(runtime)
    namespace.apply("broken", runtime={"name": name})
    namespace.apply("chat")
    namespace.bring_up(1, "chat")
    message = namespace.wait_condition("Stalled", "True", "Refused", name="broken")["message"]
    assert "volumeMounts[" in message
    assert "nowhere" in message
    assert not [
        i for i in namespace.items("controllerrevisions") if i["metadata"]["name"].startswith("broken")
    ]
    namespace.cluster.apply({**runtime, "spec": {"image": "x:1"}})
    namespace.bring_up(1, "broken")
    namespace.cluster.kubectl("delete", "llmruntime", name)


def test_a_quota_that_refuses_pods_is_named(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace.name)
    namespace.apply()
    assert "exceeded quota" in namespace.wait_condition("Degraded", "True", "PodsRefused")["message"]


@pytest.mark.parametrize(
    ("container", "reason", "part"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x": ErrImagePull: not found'}}}, "ImagePullFailed", "not found"),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": '{"event": "no model at /models/x"}'}},
            },
            "ModelNotFound",
            "no model at /models/x",
        ),
    ],
)  # fmt: skip
def test_a_failing_pod_names_its_cause_and_the_old_revision_serves_on(
    operator: OperatorProcess, namespace: Namespace, container: dict[str, Any], reason: str, part: str
) -> None:
    namespace.apply()
    first = namespace.bring_up(1)
    namespace.apply(engine={"maxNumSeqs": 4})
    (pod,) = namespace.pods(namespace.target(), 1)
    base = {"name": "engine", "image": "x", "imageID": "", "ready": False, "restartCount": 1}
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    namespace.write_pod_status(
        pod, {"phase": "Pending", "conditions": scheduled, "containerStatuses": [{**base, **container}]}
    )
    assert part in namespace.wait_condition("Degraded", "True", reason)["message"]
    assert namespace.condition("Ready")["status"] == "True"
    assert namespace.status()["activeRevision"] == first
    namespace.apply()
    namespace.wait_condition("Degraded", "False")
    namespace.cluster.wait_for(
        "the failed revision to go to zero", lambda: sorted(namespace.replicas().values()) == [0, 1], 30
    )


def test_a_lost_status_costs_no_pod(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    first = namespace.bring_up(1)
    namespace.apply(engine={"maxNumSeqs": 4})
    second = namespace.target()
    namespace.pods(second, 1)
    namespace.cluster.kubectl(
        "patch",
        "llm/chat",
        "-n",
        namespace.name,
        "--subresource=status",
        "--type=json",
        "-p",
        '[{"op": "remove", "path": "/status"}]',
    )
    namespace.cluster.wait_for(
        "the status to be rebuilt", lambda: namespace.status().get("activeRevision") == first, 30
    )
    assert namespace.replicas() == {f"chat-{first}": 1, f"chat-{second}": 1}
    assert selected(namespace) == first


def test_a_killed_operator_is_followed_by_one_that_finishes_its_work(
    control_plane: Cluster, namespace: Namespace, operator: OperatorProcess
) -> None:
    namespace.apply()
    first = namespace.bring_up(1)
    namespace.apply(engine={"maxNumSeqs": 4})
    second = namespace.target()
    (pod,) = namespace.pods(second, 1)
    assert operator.stop(signal.SIGKILL) == -signal.SIGKILL
    namespace.write_pod_status(pod, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    operator.start()
    namespace.cluster.wait_for("the switch", lambda: namespace.status()["activeRevision"] == second, 30)
    namespace.cluster.wait_for(
        "the old one at zero", lambda: namespace.replicas() == {f"chat-{first}": 0, f"chat-{second}": 1}, 30
    )
    assert selected(namespace) == second


def test_only_the_holder_of_the_lease_works_and_a_standby_is_ready(
    control_plane: Cluster, operator: OperatorProcess
) -> None:
    standby = OperatorProcess(control_plane).start("standby")
    assert standby.reconciles() == 0
    assert operator.stop() == 0
    control_plane.wait_for(
        "the standby to take over", lambda: standby.page("/readyz") == {"status": "ready"}, 30
    )
    assert standby.stop() == 0
    operator.start()


async def test_a_list_after_missed_deletes_leaves_no_ghost(
    control_plane: Cluster, namespace: Namespace
) -> None:
    install(control_plane)
    credentials = await Credentials.load(str(control_plane.kubeconfig))
    for name in ("stays", "goes"):
        control_plane.apply(endpoint(name, namespace.name))
    told: list[str] = []
    async with KubeApi(credentials) as api:
        informer = Informer(
            api, resources.ENDPOINTS, lambda item: told.append(item["metadata"]["name"]), namespace.name
        )
        first = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 10)
        assert len(informer.store) == 2
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.to_thread(control_plane.kubectl, "delete", "llm", "goes", "-n", namespace.name)
        told.clear()
        informer._version = ""  # as after a 410: the watch cannot go on from where it was
        informer.synced.clear()
        second = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 10)
        assert [item["metadata"]["name"] for item in informer.store] == ["stays"]
        assert told.count("goes") == 1  # of the other it may be told, too: the operator writes its status
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


def test_the_command_explains_itself() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "llmendpoint_operator", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--watch-namespace" in text
    assert "examples:" in text
