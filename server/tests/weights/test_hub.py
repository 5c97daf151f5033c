"""docs/concepts/models.md: every replica loads the commit that it was told, and neither pickles nor code are downloaded.

A stub of the hub's HTTP API answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmendpoint_server.weights.locate import EMBEDDED
from tests.hub_stub import MODEL, Hub

FIRST, SECOND = "1" * 40, "2" * 40
PROGRAM = """
import json, sys
from llmendpoint_server import logs
from llmendpoint_server.weights.locate import resolve_model
from llmendpoint_server.errors import ServerError
logs.configure()
try:
    print(json.dumps(str(resolve_model(sys.argv[1], sys.argv[2] or None))))
except ServerError as error:
    print(json.dumps([error.exit_code, str(error)]))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    commits = {commit: tmp_path / commit for commit in (FIRST, SECOND)}
    for commit, folder in commits.items():
        shutil.copytree(EMBEDDED / "demo", folder)
        (folder / "README.md").write_text(commit)
        (folder / "evil.bin").write_text("a pickle")
        (folder / "generation_config.json").write_text(json.dumps({"which": commit}))
    found = Hub(commits, main=FIRST)
    yield found
    found.close()


def resolve(hub: Hub, home: Path, source: str = f"hf://{MODEL}", revision: str = "") -> object:
    """In a process of its own: the library reads its environment when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, source, revision],
        capture_output=True, text=True, env=environment, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def which(folder: object) -> str:
    found: str = json.loads((Path(str(folder)) / "generation_config.json").read_text())["which"]
    return found


def test_two_replicas_load_the_commit_that_they_are_told_though_main_moved(hub: Hub, tmp_path: Path) -> None:
    first = resolve(hub, tmp_path / "pod-1", revision=FIRST)
    hub.main = SECOND
    second = resolve(hub, tmp_path / "pod-2", revision=FIRST)
    assert which(first) == which(second) == FIRST
    assert which(resolve(hub, tmp_path / "pod-3")) == SECOND


def test_neither_pickles_nor_code_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    folder = Path(str(resolve(hub, tmp_path)))
    assert (folder / "model.safetensors").is_file()
    assert not (folder / "evil.bin").exists()


@pytest.mark.parametrize(
    ("source", "revision", "code", "said"),
    [
        ("hf://acme/nothing", "", 3, "no such model"),
        (f"hf://{MODEL}", "9" * 40, 3, "no such commit"),
        ("hf://only-a-name", "", 2, "hf://<organisation>/<name>"),
    ],
)
def test_what_is_not_there_is_named(
    hub: Hub, tmp_path: Path, source: str, revision: str, code: int, said: str
) -> None:
    found = resolve(hub, tmp_path, source, revision)
    assert isinstance(found, list)
    assert found[0] == code
    assert said in found[1]


def test_a_hub_that_does_not_answer_may_do_so_later(hub: Hub, tmp_path: Path) -> None:
    hub.down = True
    found = resolve(hub, tmp_path)
    assert isinstance(found, list)
    assert found[0] == 1
    assert "hub" in found[1]
