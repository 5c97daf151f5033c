"""docs/concepts/adapters.md: where an adapter's files may be, and that only its two files are taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmendpoint_server.errors import BadConfiguration, FormatRefused, LoadError, ModelNotFound
from llmendpoint_server.weights import adapters
from llmendpoint_server.weights.adapters import CONFIG, WEIGHTS, locate_adapter
from server.tests.weights.stage import COMMIT, make_hub, make_store
from tests.hub_stub import Hub
from tests.s3_stub import ObjectStore

FILES = {CONFIG: b"{}", WEIGHTS: b"0123456789", "README.md": b"hello", "tokenizer.json": b"{}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "an adapter"
    made.mkdir()
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    return made


@pytest.fixture(params=["hub", "store"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Hub | ObjectStore, str]]:
    server: Hub | ObjectStore
    if request.param == "hub":
        server, source, environment = make_hub(tmp_path, FILES)
    else:
        server, source, environment = make_store(FILES)
    for name, value in {**environment, "HF_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    yield server, source
    server.close()


def test_an_adapter_is_found_by_path_by_file_url_and_on_a_claim(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "CLAIMS", folder.parent.parent)
    assert locate_adapter(str(folder)) == folder
    assert locate_adapter("file://" + str(folder).replace(" ", "%20")) == folder
    assert locate_adapter(f"pvc://{folder.parent.name}/{folder.name}") == folder


def test_of_a_source_only_the_adapters_own_files_are_downloaded_once(
    source: tuple[Hub | ObjectStore, str],
) -> None:
    _, name = source
    found = locate_adapter(name)
    assert {path.name for path in found.iterdir() if not path.name.startswith(".")} == {CONFIG, WEIGHTS}
    written = (found / WEIGHTS).stat().st_ino
    assert locate_adapter(name) == found
    assert (found / WEIGHTS).stat().st_ino == written


def test_a_commit_that_is_there_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, name, environment = make_hub(tmp_path, FILES)
    for variable, value in {**environment, "HF_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(variable, value)
    found = locate_adapter(f"{name}@{COMMIT}")
    hub.close()
    assert locate_adapter(f"{name}@{COMMIT}") == found


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_a_folder_without_one_of_the_files_is_not_found_and_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing):
        locate_adapter(str(folder))


def test_weights_that_are_a_pickle_are_refused(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(FormatRefused, match="pickle"):
        locate_adapter(str(folder))


def test_a_file_that_is_too_large_is_refused_with_both_sizes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adapters.MOST_BYTES, WEIGHTS, 9)
    with pytest.raises(BadConfiguration, match="10 B; an adapter's has at most 9 B"):
        locate_adapter(str(folder))


@pytest.mark.parametrize(
    "source",
    ["/nowhere", "file:///nowhere", "file://host/path", "pvc://", "pvc://claim/../x", "gs://b/x", "embedded://demo", "hf://one"],
)  # fmt: skip
def test_what_is_no_source_of_an_adapter_is_refused_by_its_name(source: str) -> None:
    with pytest.raises(LoadError, match=source.replace(".", r"\.")):
        locate_adapter(source)


def test_downloads_beyond_the_most_are_deleted_the_longest_unused_first(
    source: tuple[Hub | ObjectStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = locate_adapter(source[1])
    others = [found.parent / name for name in ("older", "old")]
    for age, other in enumerate(others):
        other.mkdir()
        os.utime(other, (1000 + age, 1000 + age))
    monkeypatch.setattr(adapters, "ADAPTERS_MAX", 2)
    locate_adapter(source[1])
    assert [path.exists() for path in (*others, found)] == [False, True, True]
