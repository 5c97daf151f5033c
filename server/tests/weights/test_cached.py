"""docs/concepts/models.md: every replica loads the commit that it was told, and neither pickles nor code are downloaded.

A stub of the hub's HTTP API answers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmendpoint_server.errors import LoadError
from llmendpoint_server.weights.locate import EMBEDDED, resolve_model
from tests.hub_stub import MODEL, Hub

FIRST, SECOND = "1" * 40, "2" * 40
SOURCE = f"hf://{MODEL}"
FOLDERS = f"/{MODEL}/resolve/"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    commits = {commit: tmp_path / commit for commit in (FIRST, SECOND)}
    for commit, folder in commits.items():
        shutil.copytree(EMBEDDED / "demo", folder)
        (folder / "README.md").write_text(commit)
        (folder / "evil.bin").write_text("a pickle")
        (folder / "evil.py").write_text("code")
        (folder / "generation_config.json").write_text(json.dumps({"which": commit}))
    found = Hub(commits, main=FIRST)
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield found
    found.close()


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on the server is in the pod of this name, with a cache of its own."""
    return lambda name: monkeypatch.setenv("HF_HOME", str(tmp_path / name))


def which(folder: Path) -> str:
    found: str = json.loads((folder / "generation_config.json").read_text())["which"]
    return found


def refusal(source: str = SOURCE, revision: str | None = None) -> tuple[int, str]:
    with pytest.raises(LoadError) as caught:
        resolve_model(source, revision)
    return caught.value.exit_code, str(caught.value)


def test_two_replicas_load_the_commit_that_they_are_told_though_main_moved(
    hub: Hub, pod: Callable[[str], None]
) -> None:
    pod("first")
    assert which(resolve_model(SOURCE, FIRST)) == FIRST
    hub.main = SECOND
    pod("second")
    assert which(resolve_model(SOURCE, FIRST)) == FIRST
    pod("third")
    assert which(resolve_model(SOURCE)) == SECOND


def test_neither_pickles_nor_code_are_downloaded(hub: Hub) -> None:
    found = {path.name for path in resolve_model(SOURCE).iterdir()}
    assert "model.safetensors" in found
    assert not found & {"evil.bin", "evil.py", "README.md"}


def test_a_commit_that_is_there_already_needs_neither_the_hub_nor_a_volume_that_can_be_written(
    hub: Hub,
) -> None:
    folder = resolve_model(SOURCE, FIRST)
    (lock,) = folder.parent.glob(".lock-*")
    lock.unlink()
    lock.mkdir()  # nobody can write to it, not even root
    hub.requests.clear()
    assert which(resolve_model(SOURCE, FIRST)) == FIRST
    assert hub.requests == []


def test_a_branch_of_a_hub_that_does_not_answer_is_what_it_was_at_the_last_download(hub: Hub) -> None:
    resolve_model(SOURCE)
    resolve_model(SOURCE, SECOND)
    hub.down = True
    assert which(resolve_model(SOURCE)) == FIRST


@pytest.mark.parametrize(
    ("source", "revision", "code", "said"),
    [
        ("hf://acme/nothing", None, 3, "404 (RepoNotFound): it is not there"),
        (SOURCE, "9" * 40, 3, "404 (RevisionNotFound): it is not there"),
        (SOURCE, "no-such-branch", 3, "404 (RevisionNotFound): it is not there"),
        ("hf://only-a-name", None, 2, "hf://<organisation>/<name>"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_is_not_there_is_named(source: str, revision: str | None, code: int, said: str) -> None:
    found = refusal(source, revision)
    assert found[0] == code
    assert said in found[1]


def test_a_hub_that_does_not_answer_may_do_so_later(hub: Hub) -> None:
    hub.down = True
    code, said = refusal()
    assert code == 1
    assert "answers 503" in said


@pytest.mark.parametrize("only", ["model.ggml", "model.bin"])
def test_weights_that_the_engine_does_not_load_are_refused_before_a_byte_is_asked_for(
    hub: Hub, only: str
) -> None:
    folder = hub.commits[FIRST]
    (folder / "evil.bin").unlink()
    (folder / "model.safetensors").rename(folder / only)
    code, said = refusal()
    assert code == 3
    assert "safetensors" in said or "pickles (model.bin)" in said
    assert not [path for path in hub.requests if path.startswith(FOLDERS)]


def test_a_private_model_needs_a_token_from_the_environment_or_from_the_login(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    code, said = refusal()
    assert code == 3
    assert "HF_TOKEN" in said
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "token").write_text("hf_secret\n")
    assert which(resolve_model(SOURCE)) == FIRST
    monkeypatch.setenv("HF_TOKEN", "another")
    assert refusal()[0] == 3


def test_a_cache_that_cannot_be_written_is_named(
    hub: Hub, tmp_path: Path, pod: Callable[[str], None]
) -> None:
    (tmp_path / "a-file").write_text("")
    pod("a-file")
    code, said = refusal(revision=FIRST)
    assert code == 1
    assert "a-file" in said
