"""docs/operate/security.md: operator and gateway do their work with exactly the permissions that the chart gives them.

Both are real processes.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from llmendpoint_gateway.serve.identity.token_reviews import AUDIENCE
from llmendpoint_operator.kube.resources import PERMISSIONS
from tests.cluster import Cluster, wait_for
from tests.cluster.errors import CommandFailed
from tests.demo.product import CHART
from tests.ports import free_port

pytestmark = pytest.mark.integration

SYSTEM = "llm-rbac"
CHILDREN = "deployments,services,serviceaccounts,controllerrevisions,poddisruptionbudgets,networkpolicies"


@pytest.fixture(scope="module")
def installed(control_plane: Cluster) -> Iterator[Cluster]:
    """The chart in a namespace of its own. Nothing runs its Deployments: there is no node."""
    control_plane.helm("upgrade", "--install", "rbac", str(CHART), "-n", SYSTEM, "--create-namespace")
    yield control_plane
    control_plane.helm("uninstall", "rbac", "-n", SYSTEM)


def token_kubeconfig(cluster: Cluster, account: str, folder: Path, namespace: str = SYSTEM) -> Path:
    """A kubeconfig that holds a token of the service account, as the pod would."""
    token = cluster.kubectl("create", "token", account, "-n", namespace).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"] = [
        {
            "name": "pod",
            "context": {"cluster": config["clusters"][0]["name"], "user": account, "namespace": namespace},
        }
    ]
    config["current-context"] = "pod"
    path = folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


class Running:
    """One of our commands; `log` is all that it said."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: Path) -> None:
        self.process, self.port, self.path = process, port, path

    @property
    def log(self) -> str:
        return self.path.read_text()

    def get(self, path: str) -> httpx.Response:
        assert self.process.poll() is None, f"it ended:\n{self.log}"
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)

    def answers(self, path: str) -> bool:
        try:
            return self.get(path).status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def running(module: str, folder: Path, *arguments: str) -> Iterator[Running]:
    """`python -m module …`, ended by SIGTERM as the kubelet does."""
    path, port = folder / f"{module}.log", free_port()
    environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
    argv = [sys.executable, "-m", module, *arguments, "--http-port", str(port)]
    with path.open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            yield Running(process, port, path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def endpoint(name: str, **changes: Any) -> dict[str, Any]:
    spec = {"model": {"source": "embedded://demo"}, "engine": {"device": "cpu"}, **changes}
    kind = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint"}
    return {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_the_operators_role_is_what_its_code_asks_for_and_no_more(installed: Cluster) -> None:
    granted: dict[tuple[str, str], set[str]] = {}
    text = installed.helm("get", "manifest", "rbac", "-n", SYSTEM)
    for role in yaml.safe_load_all(text):
        if role and role["kind"] in ("Role", "ClusterRole") and "operator" in role["metadata"]["name"]:
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        granted.setdefault((group, resource), set()).update(rule["verbs"])
    assert granted == {key: set(verbs) for key, verbs in PERMISSIONS.items()}


def test_the_operator_does_its_whole_work_under_the_charts_role(installed: Cluster, tmp_path: Path) -> None:
    """Made, edited, put back, deleted, and then still. What a cluster with the admission plugin
    OwnerReferencesPermissionEnforcement asks for beyond that, the next test names."""
    config = token_kubeconfig(installed, "llmendpoint-operator", tmp_path)

    def children() -> list[dict[str, Any]]:
        return installed.get(CHILDREN, "-n", "default", "-l", "llmendpoint.io/endpoint=rbac")["items"]

    def revisions() -> list[dict[str, Any]]:
        return [child for child in children() if child["kind"] == "ControllerRevision"]

    def writes() -> str:
        lines = operator.get("/metrics").text.splitlines()
        return "\n".join(line for line in lines if line.startswith("llmendpoint_operator_writes_total"))

    with running("llmendpoint_operator", tmp_path, "--kubeconfig", str(config)) as operator:
        wait_for("the operator is ready", lambda: operator.answers("/readyz"), 60)
        installed.apply(endpoint("rbac"))
        wait_for("all children are there", lambda: {c["kind"] for c in children()} == KINDS, 30)
        installed.apply(endpoint("rbac", engine={"device": "cpu", "maxNumSeqs": 4}))
        wait_for("a second revision", lambda: len(revisions()) == 2, 30)
        [account] = [child for child in children() if child["kind"] == "ServiceAccount"]
        installed.kubectl("patch", "serviceaccount", account["metadata"]["name"], "-n", "default", "-p", '{"automountServiceAccountToken": true}')  # fmt: skip
        wait_for(
            "the account is put back",
            lambda: (
                installed.get("serviceaccount", "rbac", "-n", "default")["automountServiceAccountToken"]
                is False
            ),
            30,
        )
        still = wait_for("it has nothing left to do", lambda: settled(writes), 60)
        assert still
        installed.kubectl("delete", "llmendpoint", "rbac", "-n", "default")
        wait_for("the children go with it", lambda: children() == [], 60)
    assert operator.process.returncode == 0
    assert refusals(operator.log) == []


def test_the_operator_may_block_an_owners_deletion_where_admission_asks_for_the_right_to(
    installed: Cluster,
) -> None:
    """The API server here has no OwnerReferencesPermissionEnforcement, as most have not: the right is asked for by name."""
    user = f"--as=system:serviceaccount:{SYSTEM}:llmendpoint-operator"
    may = ("auth", "can-i", "update", "llmendpoints.llmendpoint.io", "--subresource=finalizers", "-A", user)
    assert installed.kubectl(*may).strip() == "yes"


def refusals(log: str) -> list[str]:
    """Lines about missing permissions. Two refusals are about the moment and not about the role: in a namespace that
    another test is deleting nobody may create anything, and for seconds after the CRDs are installed the API server's
    own admission does not know the owner's kind. The operator tries again."""
    found = re.findall(r"(?i)^.*(?:forbidden|unauthorized|cannot \w+ resource).*$", log, re.MULTILINE)
    passing = ("is being terminated", "cannot find RESTMapping")
    return [line for line in found if not any(words in line for words in passing)]


KINDS = {
    "Deployment", "Service", "ServiceAccount", "ControllerRevision", "PodDisruptionBudget", "NetworkPolicy",
}  # fmt: skip


def settled(read: Any, times: int = 20) -> bool:
    """True when `read` gives the same again and again, each time after a round trip."""
    first = read()
    return all(read() == first for _ in range(times))


def test_the_gateway_reads_all_it_needs_under_the_charts_role(installed: Cluster, tmp_path: Path) -> None:
    config = token_kubeconfig(installed, "llmendpoint-gateway", tmp_path)
    socket_path = str(tmp_path / "control.sock")
    arguments = ("picker", "--socket", socket_path, "--kubeconfig", str(config))
    with running("llmendpoint_gateway", tmp_path, *arguments) as picker:
        wait_for("the picker answers", lambda: picker.answers("/healthz"), 60)
        wait_for("both kinds are listed", lambda: picker.get("/state").json()["synced"], 30)
        installed.apply(endpoint("seen"))
        wait_for(
            "it hears of an endpoint", lambda: "default/seen" in picker.get("/state").json()["endpoints"], 30
        )
        installed.kubectl("delete", "llmendpoint", "seen", "-n", "default")
        wait_for("and of its end", lambda: "default/seen" not in picker.get("/state").json()["endpoints"], 30)
    assert refusals(picker.log) == []


def test_a_gateway_is_told_by_the_operators_own_token_and_by_no_other(
    installed: Cluster, tmp_path: Path
) -> None:
    """The tokens are real, and the API server reviews them under the chart's role."""

    def token(account: str, *options: str) -> str:
        return installed.kubectl("create", "token", account, "-n", SYSTEM, *options).strip()

    def told(bearer: str | None) -> int:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return httpx.post(
            f"http://127.0.0.1:{picker.port}/epoch", json={}, headers=headers, timeout=10
        ).status_code

    config = token_kubeconfig(installed, "llmendpoint-gateway", tmp_path)
    operator = f"system:serviceaccount:{SYSTEM}:llmendpoint-operator"
    reach = ("--socket", str(tmp_path / "c.sock"), "--kubeconfig", str(config))
    audience = f"--audience={AUDIENCE}"
    with running("llmendpoint_gateway", tmp_path, "picker", *reach, "--operator", operator) as picker:
        wait_for("the picker answers", lambda: picker.answers("/healthz"), 60)
        assert told(None) == 401
        assert told("made-up") == 403
        assert told(token("llmendpoint-gateway", audience)) == 403  # somebody else's
        assert told(token("llmendpoint-operator")) == 403  # made for the API server
        assert told(token("llmendpoint-operator", audience)) == 200
    assert refusals(picker.log) == []


@pytest.mark.parametrize(
    ("account", "verb", "resource"),
    [
        ("llmendpoint-operator", "get", "secrets"),
        ("llmendpoint-operator", "update", "llmendpoints"),
        ("llmendpoint-operator", "delete", "pods"),
        ("llmendpoint-operator", "create", "clusterroles"),
        ("llmendpoint-gateway", "get", "secrets"),
        ("llmendpoint-gateway", "list", "pods"),
        ("llmendpoint-gateway", "patch", "llmendpoints/status"),
    ],
)
def test_neither_may_do_what_it_has_no_need_to(
    installed: Cluster, account: str, verb: str, resource: str
) -> None:
    user = f"--as=system:serviceaccount:{SYSTEM}:{account}"
    with pytest.raises(CommandFailed) as refused:  # `auth can-i` ends with 1 for a no
        installed.kubectl("auth", "can-i", verb, resource, "-n", "default", user)
    assert refused.value.output.strip().startswith("no")
