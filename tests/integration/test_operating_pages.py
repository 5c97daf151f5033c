"""docs/operate: the commands of upgrade, uninstall and backup do on a real API server what these pages say.

One cluster goes the whole way: chart and endpoint, the platform alone away and back, an upgrade, a backup, all away, and the
restore. Each fixture is a station of it. Kubernetes' garbage collector knows new definitions after up to 30 s, which is most
of the time here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, progress, start_control_plane
from tests.integration.installed import ROOT
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

PAGES = ROOT / "docs" / "operate"
SYSTEM = "llmendpoint-system"
DRAIN = {"gateway": {"drainSeconds": 77}}
"""A value that the user has set."""
RELEASE = 2
"""Of the blocks of uninstall.md, the one that removes the platform."""
INSTALL = 2
"""Of the blocks of backup.md, the one that installs the chart: what comes before it backs up, what comes after it restores."""
CHILDREN = (
    "deployments,services,serviceaccounts,networkpolicies,poddisruptionbudgets,controllerrevisions,jobs,pods"
)
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
KEY = {
    "apiVersion": "llmendpoint.io/v1alpha1",
    "kind": "LLMKey",
    "spec": {"id": "4k2m9x0a7b3c5d8e", "hashes": [{"sha256": "0" * 64}], "grants": [{"name": "chat"}]},
}
RECORD = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "model", "image": "i"}]}},
    },
}


def commands(page: str) -> list[str]:
    """The blocks of a page that are to be run, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


class Site:
    """A cluster of our own with the chart, and an administrator's folder with the chart in it. The operator is a process."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.operator = OperatorProcess(cluster)
        (folder / "charts").symlink_to(ROOT / "charts")

    def run(self, *blocks: str) -> str:
        """Blocks of a page, as an administrator does; what they print."""
        script = ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)]
        return progress.run(script, cwd=self.folder, env=self.cluster.environment, timeout=120)

    def values(self) -> Any:
        """What the user has set."""
        return json.loads(self.cluster.helm("get", "values", "llmendpoint", "-n", SYSTEM, "--output", "json"))

    def definitions(self) -> list[str]:
        found = self.cluster.get("customresourcedefinitions")["items"]
        names = [item["metadata"]["name"] for item in found]
        return [name for name in names if name.endswith("llmendpoint.io")]


def named(manifest: dict[str, Any], name: str, namespace: Namespace, **metadata: Any) -> dict[str, Any]:
    return {**manifest, "metadata": {"name": name, "namespace": namespace.name, **metadata}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The chart is installed with a value of the user's own, and an operator works. To uninstall is about the whole
    cluster, so this is not the one of the other tests."""
    cluster = start_control_plane(f"test-{os.getpid()}-operating")
    found = Site(cluster, tmp_path_factory.mktemp("site"))
    (found.folder / "values.yaml").write_text(json.dumps(DRAIN))
    found.run(commands("backup")[INSTALL])
    with found.operator:
        yield found
    cluster.stop()


@pytest.fixture(scope="module")
def served(site: Site) -> Namespace:
    """An endpoint with a ready pod, a claim, a Secret, and the record of a download."""
    namespace = Namespace(site.cluster)
    namespace.apply(runtime={"name": "llmendpoint"})
    namespace.bring_up(1)
    job = named(RECORD, "llm-model-1", namespace, labels={"llmendpoint.io/model-job": "llm-model-1"})
    site.cluster.apply(named(CLAIM, "models", namespace), job)
    site.cluster.kubectl("create", "secret", "generic", "hub-token", "-n", namespace.name)
    return namespace


@dataclass(frozen=True)
class Saved:
    """What was there when the backup was made."""

    endpoint: dict[str, Any]
    runtime: dict[str, Any]
    key: dict[str, Any]
    rejected: str


@pytest.fixture(scope="module")
def saved(site: Site, served: Namespace) -> Saved:
    """A backup, with a runtime and a key of the user's own, and of an endpoint whose last request was answered."""
    runtime = site.cluster.get("llmruntime", "llmendpoint")["spec"]
    mine = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMRuntime", "metadata": {"name": "mine"}}
    site.cluster.apply({**mine, "spec": runtime}, named(KEY, "ci", served))
    key = site.cluster.get("llmkey", "ci", "-n", served.name)["spec"]
    request = json.dumps({"id": "late", "action": "promote", "revision": "none"})
    site.cluster.kubectl("annotate", "llm/chat", "-n", served.name, f"llmendpoint.io/request={request}")
    site.cluster.wait_for("an answer", lambda: served.status().get("request"), 30)
    rejected = site.run(*commands("backup")[:INSTALL])
    return Saved(served.get("llmendpoint", "chat"), runtime, key, rejected)


@pytest.fixture(scope="module")
def removed(site: Site, served: Namespace, saved: Saved) -> list[str]:
    """All is uninstalled; which definitions helm left."""
    endpoints, records, release, definitions = commands("uninstall")
    site.run(endpoints)
    assert site.cluster.get("llmendpoints", "-A")["items"] == []
    site.run(records)
    site.operator.stop()  # it is a part of the release
    site.run(release)
    left = site.definitions()
    site.run(definitions)
    return left


def test_the_platform_goes_alone_and_the_next_one_takes_the_engines_over(
    site: Site, served: Namespace
) -> None:
    def engines() -> list[tuple[str, int]]:
        found = [item["metadata"] for item in served.items("deployments")]
        return [(metadata["uid"], metadata["generation"]) for metadata in found]

    before, revision = engines(), served.status()["activeRevision"]
    site.operator.stop()
    site.run(commands("uninstall")[RELEASE])
    assert engines() == before
    assert len(before) == 1
    site.run(commands("backup")[INSTALL])
    site.operator.start()
    site.operator.settle()
    assert engines() == before
    assert served.status()["activeRevision"] == revision
    assert served.wait_condition("Ready", "True")


def test_an_upgrade_keeps_what_the_user_has_set(site: Site, served: Namespace) -> None:
    site.run(*commands("upgrade"))
    assert site.values() == DRAIN
    assert len(site.definitions()) == 3


def test_to_uninstall_leaves_claims_and_secrets_and_nothing_of_ours(
    site: Site, served: Namespace, removed: list[str]
) -> None:
    assert len(removed) == 3, "helm uninstall leaves the definitions"
    assert site.definitions() == []
    site.cluster.wait_for("children and records to go", lambda: not served.items(CHILDREN), 30)
    for kind in ("clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "namespaces"):  # fmt: skip
        names = [item["metadata"]["name"] for item in site.cluster.get(kind)["items"]]
        assert [name for name in names if "llmendpoint" in name] == []
    assert [item["metadata"]["name"] for item in served.items("persistentvolumeclaims")] == ["models"]
    assert [item["metadata"]["name"] for item in served.items("secrets")] == ["hub-token"]


def test_a_backup_comes_up_without_a_status_as_a_first_revision(
    site: Site, served: Namespace, saved: Saved, removed: list[str]
) -> None:
    assert "REJECTED" in saved.rejected
    site.run(*commands("backup")[INSTALL:])
    site.operator.start()
    served.bring_up(1)
    before, after = saved.endpoint, served.get("llmendpoint", "chat")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["activeRevision"] == before["status"]["activeRevision"], (
        "a hash of the same inputs"
    )
    assert before["status"]["request"]["id"] == "late"
    assert "request" not in after["status"], "a request is not asked a second time"
    assert served.condition("NotOwned") == {}
    assert site.cluster.get("llmruntime", "mine")["spec"] == saved.runtime
    assert site.cluster.get("llmkey", "ci", "-n", served.name)["spec"] == saved.key
    assert site.values() == DRAIN
