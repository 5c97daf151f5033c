"""docs/operate/keys.md, "Make a key": a key of `kubectl llm keys` opens a real gateway under the chart's role, and a revoked one closes it.

No request reaches a replica: the endpoint has none, so whoever is let in hears that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from gateway.tests.harness import Gateway, running_gateway
from tests.cluster import Cluster, wait_for
from tests.demo.product import CHART
from tests.integration.installed import endpoint, install
from tests.integration.namespace import Namespace
from tests.integration.test_chart_rbac import token_kubeconfig

pytestmark = pytest.mark.integration

SYSTEM = "llm-keys"
SECONDS = 2
"""Within which a new, changed or revoked key counts."""
LET_IN, UNKNOWN, FORBIDDEN = (503, "no_ready_replica"), (401, "invalid_api_key"), (403, "permission_denied")
Answer = tuple[int, str]


class Stage:
    """Two namespaces; `chat` is in the first one."""

    def __init__(self, cluster: Cluster, gateway: Gateway) -> None:
        self.cluster, self.gateway = cluster, gateway
        self.mine, self.other = Namespace(cluster), Namespace(cluster)
        self.model = f"{self.mine.name}/chat"

    def keys(self, *arguments: str, namespace: Namespace | None = None) -> str:
        """What `kubectl llm keys` prints on standard output."""
        command = [
            sys.executable,
            "-m",
            "llmendpoint_cli",
            "keys",
            *arguments,
            "-n",
            (namespace or self.mine).name,
        ]
        environment = {**self.cluster.environment, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    def ask(self, key: str | None, model: str = "") -> Answer:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = {"model": model or self.model, "messages": []}
        answer = httpx.post(f"{self.gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        return answer.status_code, str(answer.json()["error"]["code"])

    def models(self, key: str) -> set[str]:
        answer = httpx.get(f"{self.gateway.url}/v1/models", headers={"x-api-key": key}, timeout=30)
        return {one["id"] for one in answer.json().get("data", [])}

    def becomes(self, expected: Answer, key: str) -> None:
        began = time.monotonic()
        wait_for(f"the answer {expected}", lambda: self.ask(key) == expected, 30)
        assert time.monotonic() - began < SECONDS

    def allow(self, *namespaces: str) -> None:
        """As `spec.access` of chat. Its requests do not wait for a replica."""
        self.cluster.apply(endpoint("chat", self.mine.name, traffic={"queue": {"maxRequests": 0}}, access={"namespaces": list(namespaces)}))  # fmt: skip


@pytest.fixture(scope="module")
def stage(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The chart with keys, and of its gateway a process with the token of its account."""
    install(control_plane)
    settings = "gateway.authentication=Required,gateway.replicas=0,operator.replicas=0,runtime.install=false"
    control_plane.helm("upgrade", "--install", "keys", str(CHART), "-n", SYSTEM, "--create-namespace", "--set", settings)  # fmt: skip
    config = token_kubeconfig(control_plane, "llmendpoint-gateway", tmp_path_factory.mktemp("keys"), SYSTEM)
    with running_gateway(config, authentication="required") as gateway:
        found = Stage(control_plane, gateway)
        found.allow()
        wait_for("chat is known", lambda: found.model in gateway.state()["endpoints"], 30)
        yield found
        for namespace in (found.mine, found.other):
            control_plane.kubectl("delete", "namespace", namespace.name, "--wait=false")
    control_plane.helm("uninstall", "keys", "-n", SYSTEM)


def test_a_key_opens_what_it_is_for_and_nothing_else(stage: Stage) -> None:
    assert stage.ask(None) == UNKNOWN
    key = stage.keys("create", "first", "--grant", "chat")
    stage.becomes(LET_IN, key)
    assert stage.models(key) == {stage.model, "chat"}
    assert stage.ask(key, "chat") == LET_IN
    assert stage.ask(key, f"{stage.other.name}/chat") == FORBIDDEN
    assert stage.ask(key[:-1] + ("A" if key[-1] != "A" else "B")) == UNKNOWN


def test_no_request_is_lost_when_a_key_is_rotated_and_none_passes_when_it_is_revoked(stage: Stage) -> None:
    old = stage.keys("create", "turned", "--all")
    stage.becomes(LET_IN, old)
    new = stage.keys("rotate", "turned", "--keep", "1h")
    stage.becomes(LET_IN, new)
    assert stage.ask(old) == LET_IN
    newest = stage.keys("rotate", "turned", "--keep", "0")
    stage.becomes(UNKNOWN, old)
    stage.becomes(UNKNOWN, new)
    stage.becomes(LET_IN, newest)
    stage.keys("revoke", "turned")
    stage.becomes(UNKNOWN, newest)


def test_a_key_of_another_namespace_needs_the_endpoints_access(stage: Stage) -> None:
    key = stage.keys("create", "guest", "--grant", stage.model, namespace=stage.other)
    stage.becomes(FORBIDDEN, key)
    stage.allow(stage.other.name)
    stage.becomes(LET_IN, key)
    stage.allow()
    stage.becomes(FORBIDDEN, key)


def test_a_key_that_is_over_is_refused(stage: Stage) -> None:
    key = stage.keys("create", "short", "--all", "--expires", "3s")
    stage.becomes(LET_IN, key)
    wait_for("the key is over", lambda: stage.ask(key) == UNKNOWN, 10)
    found = json.loads(stage.keys("list", "-o", "json"))
    assert {one["name"]: one["state"] for one in found}["short"] == "Expired"


def test_a_copy_of_an_llmkey_in_another_namespace_lets_nobody_in(stage: Stage) -> None:
    """Not even when it is the older one, as after a restore, or when nothing else has the id any more."""
    key = stage.keys("create", "copied", "--grant", "chat")
    stage.becomes(LET_IN, key)
    copied = stage.mine.get("llmkey", "copied")
    copy = {**copied, "metadata": {"name": "copied", "namespace": stage.other.name}}
    stage.cluster.apply(copy)
    stage.keys("revoke", "copied", "--delete")
    stage.becomes(UNKNOWN, key)
    stage.cluster.apply({**copied, "metadata": {"name": "copied", "namespace": stage.mine.name}})
    stage.becomes(LET_IN, key)


def test_neither_the_key_nor_its_hash_is_in_a_log(stage: Stage) -> None:
    key = stage.keys("create", "quiet", "--all")
    stage.becomes(LET_IN, key)
    spec = stage.mine.get("llmkey", "quiet")["spec"]

    def logs() -> str:
        return "".join(path.read_text() for path in stage.gateway.folder.glob("*.log"))

    wait_for(
        "the request's line", lambda: f"{stage.mine.name}/quiet" in logs(), 30
    )  # Envoy keeps lines for a while
    for secret in (key, key.rpartition("_")[2], spec["hashes"][0]["sha256"]):
        assert secret not in logs()
