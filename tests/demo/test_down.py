"""README.md: `make demo-down` removes what the demo added to a cluster, and only that."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import ClusterError, CommandFailed
from tests.demo import __main__, clusters, down, up
from tests.demo.product import DEFINITION, NAMESPACE, Images

INSTANCE = object()  # a cluster of the test bed


class FakeCluster:
    """Answers what the demo asks of a cluster, and keeps each command that changes something."""

    def __init__(self, kubeconfig: Path, *, name: str = "default", uid: str = "1", **has: Any) -> None:
        self.kubeconfig, self.name, self.uid, self.instance = kubeconfig, name, uid, INSTANCE
        self.namespace, self.definition = has.get("namespace", False), has.get("definition", False)
        self.endpoints: list[str] = has.get("endpoints", [])
        self.changes: list[str] = []

    def kubectl(self, *args: str, timeout: float = 60) -> str:
        match args[:2]:
            case ("get", "namespace") if "kube-system" in args:
                return self.uid
            case ("get", "namespace"):
                return f"namespace/{NAMESPACE}" if self.namespace else "namespace/default"
            case ("get", "crd"):
                return DEFINITION if self.definition else ""
            case ("get", _):
                pairs = [full.split("/") for full in self.endpoints]
                return json.dumps({"items": [{"metadata": {"namespace": s, "name": n}} for s, n in pairs]})
        self.changes.append(" ".join(args))
        return ""

    def helm(self, *args: str, timeout: float = 60) -> str:
        raise CommandFailed(["helm", *args], 1, "release: not found")

    def get(self, *args: str) -> Any:
        return {"items": []}

    def apply(self, *manifests: Any) -> None:
        self.changes.append("apply")


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "admin.kubeconfig"
    path.write_text("")
    for name in ("DEMO_IMAGES", "DEMO_IMAGES_TAG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEMO_KUBECONFIG", str(path))
    for module in (up, down):
        monkeypatch.setattr(module, "RECORD", tmp_path / "foreign.json")
    return path


def remove(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(clusters, "embedded_of", lambda path: cluster)
    down.run()
    return "\n".join(cluster.changes)


@pytest.mark.parametrize(("name", "is_remembered"), [("node", True), (clusters.NAME, False)])
def test_the_demo_remembers_what_there_was_unless_the_cluster_is_its_own(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_remembered: bool
) -> None:
    monkeypatch.setattr(up.product, "install", lambda cluster, values, folder: None)
    cluster = FakeCluster(kubeconfig, name=name, namespace=True)
    up._install(cluster, Images("operator:1", "gateway:1", "server:1"))  # type: ignore[arg-type]
    assert bool(up.recorded(cluster)) is is_remembered  # type: ignore[arg-type]


@pytest.mark.parametrize("there", [True, False])
def test_what_a_cluster_of_make_cluster_had_before_the_demo_stays(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    cluster = FakeCluster(kubeconfig, namespace=there, definition=there)
    up._remember(cluster)  # type: ignore[arg-type]
    cluster.namespace = cluster.definition = True
    removed = remove(cluster, monkeypatch)
    assert (f"namespace {NAMESPACE}" in removed) is not there
    assert ("charts/llmendpoint/crds" in removed) is not there
    assert "service demo-gateway" in removed


def test_a_record_of_an_earlier_cluster_with_the_same_kubeconfig_does_not_count(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up._remember(FakeCluster(kubeconfig, uid="1"))  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="no demo was installed"):
        remove(FakeCluster(kubeconfig, uid="2"), monkeypatch)


def test_nothing_is_removed_while_endpoints_of_guides_run(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(kubeconfig, definition=True, endpoints=["own/before"])
    up._remember(cluster)  # type: ignore[arg-type]
    cluster.endpoints += ["default/demo", "default/hello", "default/elastic", "team-a/chat"]
    with pytest.raises(ClusterError) as refused:
        remove(cluster, monkeypatch)
    assert "kubectl delete llmendpoint -n default elastic hello;" in str(refused.value)
    assert "kubectl delete llmendpoint -n team-a chat;" in str(refused.value)
    assert "before" not in str(refused.value)
    assert "demo," not in str(refused.value)
    assert cluster.changes == []
    cluster.endpoints = ["own/before", "default/demo"]
    assert "delete -f" in remove(cluster, monkeypatch)


def test_the_printed_commands_name_the_cluster_of_the_user(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_IMAGES", "registry.example/llm")
    cluster = FakeCluster(kubeconfig)
    cluster.instance = None
    last = up._what_next(cluster, None)  # type: ignore[arg-type]
    assert last.splitlines()[-1].strip() == f"DEMO_KUBECONFIG={kubeconfig} make demo-down"
    assert f"DEMO_KUBECONFIG={kubeconfig} DEMO_IMAGES=registry.example/llm make demo (" in __main__.go_on()
    assert f"DEMO_KUBECONFIG={kubeconfig} make demo-down)" in __main__.go_on()
    monkeypatch.delenv("DEMO_KUBECONFIG")
    assert clusters.typed("demo-down") == "make demo-down"
