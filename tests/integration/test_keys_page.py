"""docs/operate/keys.md: the commands of the page make, rotate and revoke keys on a real API server, and Git's copy is applied."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster import Cluster, progress
from tests.integration.installed import ROOT, endpoint, install
from tests.integration.namespace import Namespace

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs" / "operate" / "keys.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who types what the page says, in one shell after another."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder, self.namespace = cluster, folder, Namespace(cluster)
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = self.namespace.name
        (folder / "config").write_text(yaml.safe_dump(config))

    def run(self, block: str) -> str:
        known = self.cluster.environment
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self.cluster.bin), known["PATH"]])
        environment = {**known, "PATH": path, "KUBECONFIG": str(self.folder / "config")}
        return progress.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=self.folder, env=environment, timeout=60
        )

    def hashes(self, name: str) -> list[str]:
        return [entry["sha256"] for entry in self.namespace.get("llmkey", name)["spec"]["hashes"]]


@pytest.fixture(scope="module")
def reader(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    install(control_plane)
    found = Reader(control_plane, tmp_path_factory.mktemp("reader"))
    control_plane.apply(endpoint("chat", found.namespace.name))
    yield found
    control_plane.kubectl("delete", "namespace", found.namespace.name, "--wait=false")


def test_the_page_goes_from_a_key_to_its_end(reader: Reader) -> None:
    make, allow, change, revoke, *_ = COMMANDS
    assert "ci" in reader.run(make)
    [first] = reader.hashes("ci")
    reader.run(allow)
    assert reader.namespace.get("llmendpoint", "chat")["spec"]["access"] == {"namespaces": ["team-b"]}
    assert "Active, old key until" in reader.run(change)
    second, kept = reader.hashes("ci")
    assert kept == first
    assert second != first
    reader.run(revoke)
    assert reader.namespace.items("llmkeys") == []


def test_what_git_has_is_the_hash_of_the_key_that_the_caller_has(reader: Reader) -> None:
    *changes, by_hand = COMMANDS[4:]
    for block in changes:
        reader.run(block)
        text = (reader.folder / "shop.key").read_text()
        assert re.fullmatch(r"llm_[a-z0-9]{16}_[A-Za-z0-9_-]{43}\n", text)
        inner = hashlib.sha256(text.strip().encode()).hexdigest()
        bound = hashlib.sha256(f"{reader.namespace.name}/{inner}".encode()).hexdigest()
        assert reader.hashes("shop")[0] == reader.run(by_hand).strip() == bound
        assert text.strip() not in (reader.folder / "shop.yaml").read_text()
    assert len(reader.hashes("shop")) == len(changes) == 2


def test_the_role_on_the_page_makes_keys_and_no_endpoints(reader: Reader) -> None:
    [role] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    manifest = yaml.safe_load(role)
    manifest["metadata"]["namespace"] = reader.namespace.name
    reader.cluster.apply(manifest)
    reader.run("kubectl create rolebinding editors --role=llmkey-editor --user=alice")
    asked = "kubectl auth can-i {} {} --as=alice || true"
    assert reader.run(asked.format("create", "llmkeys")).strip() == "yes"
    assert reader.run(asked.format("create", "llmendpoints")).strip() == "no"
