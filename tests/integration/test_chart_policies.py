"""docs/operate/security.md: what an editor cannot do under the chart's policies, and what the operator's token is not good for.

On a real API server, by impersonation.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from llmendpoint_cli import kubeconfig
from llmendpoint_cli.client import Client
from llmendpoint_cli.core.requests import Action, Request, patch_for
from llmendpoint_cli.core.respec import spec_patch
from tests.cluster import Cluster, wait_for
from tests.cluster.errors import CommandFailed
from tests.integration.policies_stage import (
    ALICE,
    LABELS,
    OPERATOR,
    SYSTEM,
    TENANT,
    VALUES,
    adapters,
    allowed,
    deployment,
    endpoint,
    env,
    helm_values,
    judged,
    model,
    patch,
    refusal,
    service,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def enforced(control_plane: Cluster) -> Iterator[Cluster]:
    """The chart with policies in force, and Alice."""
    labels = {"policies": "yes"}
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rights = [{"apiGroups": ["llmendpoint.io"], "resources": ["llmendpoints"], "verbs": verbs}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "edit", "namespace": TENANT}, "rules": rights}  # fmt: skip
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT, "labels": labels}}
    control_plane.apply(space)
    control_plane.apply(role, binding)
    helm_values(control_plane, VALUES)
    wait_for("the policies are in force", lambda: refusal(control_plane, image="evil:1"), 30)
    wait_for("so are the operator's bounds", lambda: not allowed(control_plane, service("x", {})), 30)
    yield control_plane
    control_plane.helm("uninstall", "policies", "-n", SYSTEM)
    control_plane.kubectl("delete", "namespace", TENANT, "--wait=false")


@pytest.mark.parametrize(
    ("spec", "field", "allowed_words"),
    [
        ({"runtime": {"name": "team-b-vllm"}}, "spec.runtime.name", "llmendpoint, team-a-*"),
        ({"runtime": {"image": "evil.example/miner:1"}}, "spec.runtime.image", "registry.example.com/llm/*"),
        ({"runtime": {"image": "registry.example.com/llm-evil:1"}}, "spec.runtime.image", "registry.example.com/llm/*"),
        ({"runtime": {"args": ["--trust-remote-code"]}}, "spec.runtime.args", "--max-num-batched-tokens=*"),
        (env("LD_PRELOAD", "/models/x.so"), "spec.runtime.env", "AWS_REGION, OMP_*"),
        (env("HTTPS_PROXY", "http://evil.example"), "spec.runtime.env", "AWS_REGION, OMP_*"),
        (env("HF_ENDPOINT", "http://evil.example"), "spec.runtime.env: HF_ENDPOINT", "https://hub.example.com"),
        (env("AWS_ENDPOINT_URL", "http://evil.example"), "spec.runtime.env: HF_ENDPOINT", "https://s3.example.com/"),
        (model("file:///etc"), "spec.model.source", "hf://*"),
        (model("oci://evil.example/x@sha256:" + "a" * 64), "spec.model.source", "hf://*"),
        (model("pvc://postgres-data/x"), "spec.model.cache.claimName", "models"),
        (model(cache={"claimName": "postgres-data"}), "spec.model.cache.claimName", "models"),
        (adapters("hf://acme/sql", "pvc://postgres-data/x"), "spec.adapters", "models"),
        (adapters("file:///etc"), "spec.adapters", "hf://*"),
        (model(credentials={"secretName": "payroll"}), "spec.model.credentials.secretName", "hub-token"),
        ({"resources": {"tolerations": [{"operator": "Exists"}]}}, "spec.resources.tolerations", "nvidia.com/gpu"),
        ({"resources": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}},
         "spec.resources.tolerations", "nvidia.com/gpu"),
        (judged("http://169.254.169.254/latest"), "compare.endpoint", "judge.example.com"),
        (judged("https://judge.example.com@evil.example/v1"), "compare.endpoint", "judge.example.com"),
        (judged("team-b/judge"), "compare.endpoint", "platform"),
    ],
)  # fmt: skip
def test_with_edit_rights_alone_nobody_gets_what_the_platform_does_not_allow(
    enforced: Cluster, spec: dict[str, Any], field: str, allowed_words: str
) -> None:
    said = refusal(enforced, endpoint(**spec))
    assert "ValidatingAdmissionPolicy" in said
    assert field in said
    assert allowed_words in said


def test_the_expressions_fit_the_types_that_they_are_about(enforced: Cluster) -> None:
    """The API server's own check, which only warns: an expression that does not fit fails for some object."""

    def checked() -> list[dict[str, Any]] | None:
        found = enforced.get("validatingadmissionpolicies")["items"]
        ours = [p for p in found if p["metadata"]["name"].endswith(SYSTEM)]
        done = all(p.get("status", {}).get("observedGeneration") == p["metadata"]["generation"] for p in ours)
        return ours if done and len(ours) == 5 else None

    policies = wait_for("the policies to be checked", checked, 60)
    assert {p["metadata"]["name"]: p["status"].get("typeChecking", {}) for p in policies} == {
        p["metadata"]["name"]: {} for p in policies
    }


def test_an_endpoint_does_not_run_as_the_namespaces_default_account(enforced: Cluster) -> None:
    assert "metadata.name" in refusal(enforced, endpoint("default"))


def test_what_the_platform_allows_is_taken(enforced: Cluster) -> None:
    whole = endpoint(
        model={"source": "hf://acme/demo", "cache": {"claimName": "models"}, "credentials": {"secretName": "hub-token"}},
        runtime={
            "name": "team-a-vllm",
            "image": "registry.example.com/llm/engine:1",
            "args": ["--max-num-batched-tokens=64"],
            "env": [{"name": "AWS_REGION", "value": "eu-north-1"}, {"name": "OMP_NUM_THREADS", "value": "2"},
                    {"name": "HF_ENDPOINT", "value": "https://hub.example.com/"}],
        },
        resources={"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        rollout={"verification": {"prompts": [
            {"name": str(i), "prompt": "?", "compare": {"mode": "Judge", "endpoint": judge}}
            for i, judge in enumerate((f"{TENANT}/judge", "platform/judge", "https://judge.example.com/v1"))
        ]}},
    )  # fmt: skip
    assert refusal(enforced, whole) == ""
    assert refusal(enforced, endpoint(model={"source": "pvc://models/x"})) == ""
    assert refusal(enforced, endpoint(**adapters("hf://acme/sql", "pvc://models/sql"))) == ""


def test_the_largest_endpoint_is_within_the_cost_of_the_rules(enforced: Cluster) -> None:
    """Lists as long as the CRD allows, held against lists as long as the values may be."""
    long = [f"a-name-of-some-length-{i}-*" for i in range(63)]
    lists = {key: [*long, "*"] for key in ("runtimes", "images", "args", "env", "sources", "claims", "secrets", "tolerations")}  # fmt: skip
    helm_values(enforced, {**VALUES, "policies": {**VALUES["policies"], "allowed": lists}})
    prompts = [{"name": str(i), "prompt": "?", "compare": {"mode": "Judge", "endpoint": f"{TENANT}/{'x' * 400}"}} for i in range(16)]  # fmt: skip
    largest = endpoint(
        model={"source": "s3://models/" + "x" * 450},
        runtime={
            "name": "n" * 253,
            "image": "i" * 500,
            "args": ["--" + "x" * 1000 for _ in range(32)],
            "env": [{"name": f"V{i}" + "X" * 100, "value": "x" * 4000} for i in range(64)],
        },
        resources={"tolerations": [{"key": f"k{i}" + "x" * 300, "operator": "Exists"} for i in range(16)]},
        engine={"maxAdapters": 64},
        **adapters(*("s3://models/" + "x" * 450 for _ in range(64))),
        rollout={"verification": {"prompts": prompts}},
    )
    try:
        wait_for("the longer lists are in force", lambda: refusal(enforced, largest) == "", 30)
    finally:
        helm_values(enforced, VALUES)
        wait_for("the short ones again", lambda: refusal(enforced, image="evil:1"), 30)


def test_an_endpoint_from_before_can_be_labelled_scaled_and_deleted(enforced: Cluster) -> None:
    enforced.kubectl("label", "namespace", TENANT, "policies-")
    wait_for("the namespace is left out", lambda: refusal(enforced, image="evil:1") == "", 30)
    enforced.apply(endpoint("old", runtime={"image": "evil:1"}))
    enforced.kubectl("label", "namespace", TENANT, "policies=yes")
    wait_for("the namespace is back", lambda: refusal(enforced, image="evil:1"), 30)
    enforced.kubectl("label", "llmendpoint", "old", "-n", TENANT, "a=b", ALICE)
    enforced.kubectl("scale", "llmendpoint", "old", "-n", TENANT, "--replicas=2")
    change = json.dumps({"spec": {"runtime": {"env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}}})
    with pytest.raises(CommandFailed, match=r"spec\.runtime\.image"):
        enforced.kubectl("patch", "llmendpoint", "old", "-n", TENANT, "--type=merge", "-p", change, ALICE)
    enforced.kubectl("delete", "llmendpoint", "old", "-n", TENANT, ALICE)


def test_an_undo_brings_back_no_spec_that_the_policies_refuse(enforced: Cluster) -> None:
    """Not a revision that was recorded before they were: `kubectl llm rollout undo` writes its spec with the request."""
    enforced.apply(endpoint("undone"))
    before = endpoint(runtime={"image": "evil:1"})["spec"]
    live = json.loads(enforced.kubectl("get", "llmendpoint", "undone", "-n", TENANT, "-o", "json"))
    change = patch_for(live, Request("1", Action.UNDO, "a"), spec_patch(live["spec"], before))
    words = ("patch", "llmendpoint", "undone", "-n", TENANT, "--type=merge", "-p", json.dumps(change), ALICE)
    with pytest.raises(CommandFailed, match=r"spec\.runtime\.image"):
        enforced.kubectl(*words)


def test_runtimes_are_for_administrators(enforced: Cluster) -> None:
    kind = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMRuntime"}
    runtime = {**kind, "metadata": {"name": "mine"}, "spec": {"image": "evil:1"}}
    assert "forbidden" in refusal(enforced, runtime)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "1", "action": "promote", "revision": "a"}',
        '{"action":"promote","id":"1"}',
        '{"id": "1", "action": "\\u0070romote"}',
        '{"id": "1", "action": "abort", "action": "promote"}',
    ],
)
def test_who_edits_does_not_promote(enforced: Cluster, text: str) -> None:
    with pytest.raises(CommandFailed, match="needs the verb promote"):
        request(enforced, "unpromoted", text)


def request(cluster: Cluster, name: str, text: str) -> None:
    cluster.apply(endpoint(name, rollout={"promotion": "Manual"}))
    change = json.dumps({"metadata": {"annotations": {"llmendpoint.io/request": text}}})
    cluster.kubectl("patch", "llmendpoint", name, "-n", TENANT, "--type=merge", "-p", change, ALICE)


def test_other_requests_are_the_editors(enforced: Cluster) -> None:
    request(enforced, "restarted", '{"id": "1", "action": "restart"}')
    request(enforced, "restarted", '{"id": "2", "action": "abort", "revision": "a"}')


def test_who_edits_does_not_take_the_promotion_away(enforced: Cluster) -> None:
    enforced.apply(endpoint("guarded", rollout={"promotion": "Manual"}))
    for change in ({"rollout": {"promotion": "Auto"}}, {"rollout": None}):
        patch = json.dumps({"spec": change})
        with pytest.raises(CommandFailed, match=r"spec\.rollout\.promotion"):
            enforced.kubectl("patch", "llmendpoint", "guarded", "-n", TENANT, "--type=merge", "-p", patch, ALICE)  # fmt: skip


def test_who_has_the_verb_promotes(enforced: Cluster) -> None:
    enforced.kubectl("create", "role", "promote", "-n", TENANT, "--verb=promote", "--resource=llmendpoints.llmendpoint.io")  # fmt: skip
    enforced.kubectl("create", "rolebinding", "promote", "-n", TENANT, "--role=promote", "--user=alice")
    try:
        wait_for("she may", lambda: _promotes(enforced), 30)
    finally:
        enforced.kubectl("delete", "rolebinding", "promote", "-n", TENANT)


def _promotes(cluster: Cluster) -> bool:
    try:
        request(cluster, "promoted", '{"id": "1", "action": "promote", "revision": "a"}')
    except CommandFailed:
        return False
    return True


def test_warn_takes_it_and_says_what_is_wrong(enforced: Cluster) -> None:
    helm_values(enforced, {**VALUES, "policies": {**VALUES["policies"], "mode": "warn"}})
    text = yaml.safe_dump(endpoint(runtime={"image": "evil:1"}))
    argv = [str(enforced.bin / "kubectl"), "create", "--dry-run=server", ALICE, "-f", "-"]
    try:

        def warned() -> bool:
            done = subprocess.run(argv, input=text, capture_output=True, text=True, env=enforced.environment, check=False)  # fmt: skip
            return done.returncode == 0 and "Warning:" in done.stderr and "spec.runtime.image" in done.stderr

        wait_for("a warning", warned, 30)
        assert "spec.runtime.image" in _told_by_the_plugin(enforced)
    finally:
        helm_values(enforced, VALUES)
        wait_for("enforced again", lambda: refusal(enforced, image="evil:1"), 30)


def _told_by_the_plugin(cluster: Cluster) -> str:
    """What `kubectl llm` hears when it writes a spec that a policy warns of."""
    cluster.apply(endpoint("warned"))
    heard: list[str] = []
    client = Client(lambda: kubeconfig.load(str(cluster.kubeconfig)), heard.append)
    client.patch_endpoint(TENANT, "warned", {"spec": {"runtime": {"image": "evil:1"}}})
    client.close()
    return "\n".join(heard)


def test_the_operators_token_makes_and_changes_only_what_is_its_own(enforced: Cluster) -> None:
    enforced.apply(service("postgres", {}), service("ours", LABELS))
    assert allowed(enforced, service("new", LABELS))
    assert allowed(enforced, service("ours", LABELS))
    assert not allowed(enforced, service("new", {}))
    assert not allowed(enforced, service("postgres", LABELS)), "a label that it brings makes nothing its own"
    delete = ("delete", "service", "-n", TENANT, "--dry-run=server", OPERATOR)
    enforced.kubectl(*delete, "ours")
    with pytest.raises(CommandFailed, match="the operator did not make this object"):
        enforced.kubectl(*delete, "postgres")
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "builder", "namespace": TENANT},
    }
    enforced.apply(account)
    assert not allowed(enforced, {**account, "metadata": {**account["metadata"], "labels": LABELS}})


@pytest.mark.parametrize(
    ("pod", "container", "good"),
    [
        ({}, {}, True),
        ({"automountServiceAccountToken": True}, {}, False),
        ({"serviceAccountName": "builder"}, {}, False),
        ({"hostNetwork": True}, {}, False),
        ({"hostPID": True}, {}, False),
        ({}, {"securityContext": {"privileged": True}}, False),
        ({}, {"securityContext": None}, False),
        ({"initContainers": [{"name": "i", "image": "i"}]}, {}, False),
    ],
)
def test_the_operators_token_runs_no_pod_with_more_rights_than_an_engine_has(
    enforced: Cluster, pod: dict[str, Any], container: dict[str, Any], good: bool
) -> None:
    assert allowed(enforced, deployment(pod, container)) is good


def test_the_operators_token_scales_a_deployment_to_which_others_have_added_a_container(
    enforced: Cluster,
) -> None:
    def manifest(*added: str, **fields: Any) -> dict[str, Any]:
        made = deployment({}, {})
        made["spec"]["template"]["spec"]["containers"] += [{"name": n, "image": "mesh:1"} for n in added]
        made["spec"]["template"]["spec"] |= fields
        return {**made, "metadata": {**made["metadata"], "name": "chat-meshed"}}

    enforced.apply(manifest("mesh", hostNetwork=True))
    scaled = manifest("mesh", hostNetwork=True)
    scaled["spec"]["replicas"] = 1
    assert allowed(enforced, scaled)
    enforced.kubectl("delete", "deployment", "chat-meshed", "-n", TENANT)
    enforced.apply(manifest("mesh"))
    assert allowed(enforced, manifest("mesh", terminationGracePeriodSeconds=60))
    assert not allowed(enforced, manifest("mesh", "another")), "one that it brings itself"
    assert not allowed(enforced, manifest("mesh", hostNetwork=True)), "rights that it brings itself"


def test_of_a_pod_the_operators_token_changes_one_annotation(enforced: Cluster) -> None:
    containers = [{"name": "c", "image": "i"}]
    for name, labels in (("mine", LABELS), ("other", {"app": "x"})):
        metadata = {"name": name, "namespace": TENANT, "labels": labels, "annotations": {"a": "b"}}
        enforced.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})  # fmt: skip
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
    assert patch(enforced, "mine", cost) == ""
    for name, change in (
        ("other", cost),
        ("mine", {"metadata": {"annotations": {"a": "c"}}}),
        ("mine", {"metadata": {"annotations": {"a": None}}}),
        ("mine", {"metadata": {"annotations": {"sidecar.istio.io/inject": "x"}}}),
        ("mine", {"metadata": {"labels": {"app": "postgres"}}}),
        ("mine", {"metadata": {"finalizers": ["a.example/b"]}}),
        ("mine", {"spec": {"containers": [{"name": "c", "image": "evil:1"}]}}),
    ):
        assert "ValidatingAdmissionPolicy" in patch(enforced, name, change), (name, change)
