"""docs/operate/troubleshooting.md: whoever writes where the operator writes is named, undone or left, and no endpoint stops for it."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster import Cluster
from tests.integration.installed import ROOT, RUNTIME, endpoint
from tests.integration.namespace import READY, Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration


def patch_status(namespace: Namespace, status: dict[str, Any]) -> None:
    """As a backup tool that restores a status does, under a name of its own."""
    namespace.cluster.kubectl(
        "patch", "llm/chat", "-n", namespace.name, "--subresource=status", "--type=merge",
        "--field-manager=backup", "-p", json.dumps({"status": status}),
    )  # fmt: skip


def writes_within(operator: OperatorProcess, seconds: float) -> float:
    """Writes of the next seconds."""
    before = operator.writes()
    time.sleep(seconds)
    return operator.writes() - before


def test_what_another_manager_wrote_into_the_status_is_removed_once(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    revision = namespace.bring_up(1)
    operator.settle()
    plain = namespace.status()
    (pod,) = namespace.pods(revision, 1)
    rejected = {"revision": "gone", "reason": "X", "message": "x", "at": "2026-01-01T00:00:00Z"}
    for garbage in (
        {"traffic": {"draining": ["a1-old-gone"]}},
        {"traffic": {"draining": [pod]}},
        {"rejected": rejected, "override": {"inputs": "a", "revision": "b"}},
        {
            "traffic": {"epoch": -1, "weights": [{"revision": "nope", "weight": 100}]},
            "activeRevision": "nope",
        },
        {"rollout": {"state": "Observing", "green": "nope", "stateSince": "2099-01-01T00:00:00Z"}},
    ):
        patch_status(namespace, garbage)

        def as_before() -> bool:
            found = namespace.status()
            return {**found, "traffic": {**found["traffic"], "epoch": 0}, "switchedAt": ""} == {
                **plain,
                "traffic": {**plain["traffic"], "epoch": 0},
                "switchedAt": "",
            }

        namespace.cluster.wait_for(f"the status to be as it was after {garbage}", as_before, 30)
        assert writes_within(operator, 2) <= 1, garbage
    assert namespace.replicas() == {f"chat-{revision}": 1}


TAMPER = {
    "a container": [{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "miner", "image": "x"}}],
    "a volume of the host": [
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "root", "hostPath": {"path": "/"}}}
    ],
    "the host's network": [{"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True}],
    "another account": [{"op": "replace", "path": "/spec/template/spec/serviceAccountName", "value": "default"}],
}  # fmt: skip


def test_what_nobody_may_add_is_taken_away_and_what_others_may_add_stays(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    revision = namespace.bring_up(1)
    name = f"chat-{revision}"
    namespace.cluster.kubectl("annotate", "deployment", name, "theirs=1", "-n", namespace.name)
    clean = namespace.get("deployment", name)["spec"]["template"]["spec"]
    tampered = json.dumps([step for patch in TAMPER.values() for step in patch])
    namespace.cluster.kubectl(
        "patch", "deployment", name, "-n", namespace.name, "--type=json", "-p", tampered
    )  # in one piece: changes one after the other are a dispute
    namespace.cluster.wait_for(
        "all of it to be taken away",
        lambda: namespace.get("deployment", name)["spec"]["template"]["spec"] == clean,
        30,
    )
    selector = '{"spec": {"selector": {"app": "theirs"}}}'
    namespace.cluster.kubectl("patch", "service/chat", "-n", namespace.name, "-p", selector)
    namespace.cluster.wait_for(
        "the selector", lambda: "app" not in namespace.get("service", "chat")["spec"]["selector"], 30
    )
    assert namespace.get("deployment", name)["metadata"]["annotations"]["theirs"] == "1"
    assert namespace.condition("Degraded")["status"] == "False"


POLICY = "llm-test-injector"


@pytest.fixture
def injector(namespace: Namespace) -> Iterator[Namespace]:
    """An admission policy that adds a container to every Deployment of the namespace."""
    expression = (
        'JSONPatch{op: "add", path: "/spec/template/spec/containers/-", '
        'value: Object.spec.template.spec.containers{name: "injected", image: "x:1"}}'
    )
    group = "admissionregistration.k8s.io"
    versions = namespace.cluster.kubectl("api-versions").split()
    version = next(v for v in (f"{group}/v1", f"{group}/v1beta1") if v in versions)
    kinds = namespace.cluster.kubectl("api-resources", f"--api-group={group}")
    if "MutatingAdmissionPolicy" not in kinds:
        pytest.skip("this API server has no MutatingAdmissionPolicy")
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}  # fmt: skip
    absent = '!object.spec.template.spec.containers.exists(c, c.name == "injected")'
    policy = {
        "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConditions": [{"name": "absent", "expression": absent}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{expression}]"}}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": POLICY},
        "spec": {
            "policyName": POLICY,
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
            },
        },
    }  # fmt: skip
    namespace.cluster.apply(policy)
    namespace.cluster.apply(binding)
    trial = (
        "create",
        "deployment",
        "trial",
        "--image=x:1",
        "--dry-run=server",
        "-o",
        "yaml",
        "-n",
        namespace.name,
    )
    namespace.cluster.wait_for(
        "the policy to be in force", lambda: "injected" in namespace.cluster.kubectl(*trial), 30
    )
    yield namespace
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        namespace.cluster.kubectl("delete", kind, POLICY, "--ignore-not-found")


def test_an_admission_policy_that_fights_a_child_is_named_and_not_fought(
    operator: OperatorProcess, injector: Namespace
) -> None:
    injector.apply()
    injector.wait_condition("Degraded", "True", "ChildContested")
    said = injector.condition("Degraded")["message"]
    assert "containers[name=injected]" in said
    assert "an admission policy or webhook" in said

    def written() -> list[str]:
        marks = ('"event": "wrote"', '"kind": "Deployment"', f'"{injector.name}/chat"')
        return [line for line in operator.log.read_text().splitlines() if all(mark in line for mark in marks)]

    operator.settle()
    before = written()
    time.sleep(5)
    assert before
    assert written()[len(before) :] == []
    reasons = [
        e["reason"] for e in injector.get("events")["items"] if e["involvedObject"]["kind"] == "LLMEndpoint"
    ]
    assert reasons.count("ChildContested") == 1
    assert "ChildRestored" not in reasons, "nothing was put back"


def test_who_loses_a_model_name_is_told_and_the_first_who_claimed_it_is_not(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    name = f"grab-{namespace.name}"
    served = {"source": "embedded://demo", "servedNames": [name]}
    namespace.apply("first", model=served)
    namespace.target("first")
    time.sleep(1.1)  # creation times are whole seconds
    namespace.apply("second", model=served)
    said = namespace.wait_condition("NameConflict", "True", name="second")["message"]
    assert f"{namespace.name}/first" in said
    assert any(name in message for message in namespace.wait_events("NameConflict"))
    assert namespace.condition("NameConflict", "first") == {}
    namespace.cluster.kubectl("delete", "llm/first", "-n", namespace.name)
    namespace.cluster.wait_for(
        "the second to have the name", lambda: not namespace.condition("NameConflict", "second"), 30
    )
    time.sleep(1.1)
    namespace.apply("first", model=served)
    said = namespace.wait_condition("NameConflict", "True", name="first")["message"]
    assert f"{namespace.name}/second" in said


def test_an_edit_tells_old_and_new_value(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(engine={"maxNumSeqs": 2})
    namespace.target()
    namespace.apply(engine={"maxNumSeqs": 4})
    namespace.target()
    messages = namespace.wait_events("SpecChanged", 2)
    assert any("engine.maxNumSeqs (2 -> 4)" in message for message in messages)


def test_an_endpoint_whose_runtime_kind_was_deleted_says_so_and_serves_on(
    prepared: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    runtimes = prepared.get("llmruntimes")["items"]
    namespace.apply()
    revision = namespace.bring_up(1)
    crd = next(
        c
        for path in sorted((ROOT / "crds").glob("*.yaml"))
        if (c := yaml.safe_load(path.read_text()))["spec"]["names"]["kind"] == "LLMRuntime"
    )
    prepared.kubectl("delete", "crd", crd["metadata"]["name"], "--timeout=60s")
    try:
        namespace.wait_condition("RuntimeMissing", "True")
        assert namespace.condition("Ready")["status"] == "True"
        assert namespace.replicas() == {f"chat-{revision}": 1}
    finally:
        prepared.apply(crd)
        prepared.kubectl("wait", "--for=condition=Established", "crd", crd["metadata"]["name"])
        for item in runtimes:
            kept = {k: item[k] for k in ("apiVersion", "kind", "spec")}
            prepared.apply({**kept, "metadata": {"name": item["metadata"]["name"]}})
    namespace.cluster.wait_for(
        "the runtime to be seen again", lambda: not namespace.condition("RuntimeMissing"), 60
    )
    assert RUNTIME in {item["metadata"]["name"] for item in runtimes}


def test_two_endpoints_that_differ_in_tolerations_download_the_same_model_side_by_side(
    prepared: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    assert operator.stop() == 0
    try:
        with OperatorProcess(prepared, "--model-image", "localhost/model:1"):
            download_side_by_side(namespace)
    finally:
        operator.start()


def download_side_by_side(namespace: Namespace) -> None:
    """The answers of the Jobs that ask are played."""
    namespace.cluster.apply(
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "cache", "namespace": namespace.name},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    )  # fmt: skip
    model = {"source": "s3://models/demo", "cache": {"claimName": "cache"}}
    for name, resources in (
        ("plain", {}),
        ("tainted", {"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
    ):
        namespace.cluster.apply(endpoint(name, namespace.name, model=model, resources=resources))
    answer = {"exitCode": 0, "message": json.dumps({"revision": "4" * 40}), "reason": "Completed"}
    jobs = namespace.cluster.wait_for("both to ask", lambda: two(named(namespace, "model-resolve")), 30)
    for job in jobs:
        end(namespace, job, answer)
    downloads = namespace.cluster.wait_for(
        "two downloads", lambda: two(named(namespace, "model-download")), 30
    )
    tolerations = [bool(job["spec"]["template"]["spec"].get("tolerations")) for job in downloads]
    assert sorted(tolerations) == [False, True]
    for name in ("plain", "tainted"):
        assert namespace.condition("Stalled", name) == {}


def named(namespace: Namespace, component: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = namespace.get("jobs", "-l", f"app.kubernetes.io/component={component}")[
        "items"
    ]
    return found


def two(items: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return items if len(items) == 2 else None


def end(namespace: Namespace, job: dict[str, Any], terminated: dict[str, Any]) -> None:
    """The Job's pod ends, as a kubelet says it."""
    select = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    pod = namespace.cluster.wait_for("its pod", lambda: namespace.get("pods", "-l", select)["items"], 30)[0]
    container = {"name": "model", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    status = {
        **READY, "phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": terminated}}]
    }  # fmt: skip
    namespace.write_pod_status(pod["metadata"]["name"], status)
