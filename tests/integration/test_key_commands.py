"""docs/operate/keys.md: `kubectl llm keys` through the real kubectl on a real API server, as a script and as Git use it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.integration.installed import endpoint, install
from tests.integration.namespace import Namespace

pytestmark = pytest.mark.integration


class Keys:
    """A namespace of its own, and what a user types there."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.namespace, self.cluster, self.folder = Namespace(cluster), cluster, folder

    def run(self, script: str) -> tuple[int, str, str]:
        """A line of bash with `kubectl-llm` on PATH: exit code, standard output, standard error."""
        known = self.cluster.environment
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self.cluster.bin), known["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, capture_output=True, text=True, timeout=60,
            env={**known, "PATH": path, "NS": self.namespace.name},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def sha256(self, text: str) -> str:
        inner = hashlib.sha256(text.strip().encode()).hexdigest()
        return hashlib.sha256(f"{self.namespace.name}/{inner}".encode()).hexdigest()

    def hashes(self, name: str = "ci") -> list[str]:
        return [entry["sha256"] for entry in self.spec(name)["hashes"]]

    def spec(self, name: str = "ci") -> dict[str, Any]:
        found: dict[str, Any] = self.namespace.get("llmkey", name)["spec"]
        return found


@pytest.fixture
def keys(control_plane: Cluster, tmp_path: Path) -> Iterator[Keys]:
    install(control_plane)
    found = Keys(control_plane, tmp_path)
    yield found
    control_plane.kubectl("delete", "namespace", found.namespace.name, "--wait=false")


def test_a_script_makes_a_key_rotates_and_revokes_it(keys: Keys) -> None:
    code, first, said = keys.run(
        'KEY=$(kubectl llm keys create ci -n $NS --grant chat --expires 30d); echo "$KEY"'
    )
    assert (code, keys.hashes()) == (0, [keys.sha256(first)])
    assert "does not exist yet" in said
    code, second, said = keys.run("kubectl llm keys rotate ci -n $NS --keep 2h")
    assert (code, keys.hashes()) == (0, [keys.sha256(second), keys.sha256(first)])
    assert "the old key is accepted until" in said
    code, third, _ = keys.run("kubectl llm keys rotate ci -n $NS --keep 0")
    assert (code, keys.hashes()) == (0, [keys.sha256(third)])
    assert keys.run("kubectl llm keys revoke ci -n $NS")[0] == 0
    assert keys.spec()["disabled"] is True
    code, table, _ = keys.run("kubectl llm keys list -n $NS")
    assert (code, table.splitlines()[1].split()[-1]) == (0, "Disabled")
    assert keys.run("kubectl llm keys revoke ci -n $NS --delete")[0] == 0
    assert keys.run("kubectl llm keys revoke ci -n $NS --delete")[0] == 3
    assert keys.namespace.items("llmkeys") == []


def test_a_manifest_for_git_goes_through_an_apply_and_a_rotation(keys: Keys) -> None:
    apply = "kubectl apply --server-side --field-manager=argocd-controller -f ci.yaml >&2"
    code, _, said = keys.run(f"kubectl llm keys create ci -n $NS --all --dry-run >ci.yaml 2>ci.key; {apply}")
    first = (keys.folder / "ci.key").read_text()
    assert (code, keys.hashes()) == (0, [keys.sha256(first)]), said
    code, _, said = keys.run(f"kubectl llm keys rotate ci -n $NS --dry-run >ci.yaml 2>ci.key; {apply}")
    second = (keys.folder / "ci.key").read_text()
    assert (code, keys.hashes()) == (0, [keys.sha256(second), keys.sha256(first)]), said
    assert "Warning: argocd-controller applies a manifest" in keys.run("kubectl llm keys rotate ci -n $NS")[2]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("create ci", 2, "name what the key may use"),
        ("create Ci --all", 4, "metadata.name"),
        ("create ci --grant chat --grant A_b", 4, "name must be the name of one LLMEndpoint"),
        ("rotate none", 3, "not found"),
        ("create ci --all --as-is", 2, "No such option"),
    ],
)
def test_what_is_refused_prints_no_key(keys: Keys, command: str, code: int, said: str) -> None:
    found, printed, message = keys.run(f"kubectl llm keys {command} -n $NS")
    assert (found, printed) == (code, "")
    assert said in message


def test_a_second_key_of_the_same_name_is_refused_and_the_first_one_stays(keys: Keys) -> None:
    first = keys.run("kubectl llm keys create ci -n $NS --all")[1]
    code, printed, message = keys.run("kubectl llm keys create ci -n $NS --all")
    assert (code, printed) == (4, "")
    assert "kubectl llm keys rotate ci" in message
    assert keys.hashes() == [keys.sha256(first)]


def test_a_grant_in_another_namespace_is_warned_of_until_its_endpoint_allows_it(keys: Keys) -> None:
    other = Namespace(keys.cluster)
    keys.cluster.apply(endpoint("chat", other.name))
    create = f"kubectl llm keys create x -n $NS --grant {other.name}/chat"
    assert f"spec.access.namespaces must have {keys.namespace.name}" in keys.run(create)[2]
    keys.cluster.apply(endpoint("chat", other.name, access={"namespaces": [keys.namespace.name]}))
    assert "Warning" not in keys.run(create.replace(" x ", " y "))[2]
    found = json.loads(keys.run("kubectl llm keys list -n $NS -o json")[1])
    assert [one["grants"] for one in found] == [[f"{other.name}/chat"]] * 2
    keys.cluster.kubectl("delete", "namespace", other.name, "--wait=false")
