"""docs/contribute/contracts.md: `--model` is a folder or URL; a missing file is named, and the content has a name of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llmendpoint_server.errors import BadConfiguration, ModelNotFound
from llmendpoint_server.weights.locate import content_revision, resolve_model

DEMO = resolve_model("embedded://demo")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model with space"))


def test_a_model_is_found_by_path_and_by_file_url(model: Path) -> None:
    assert resolve_model(str(model)) == model
    assert resolve_model("file://" + str(model).replace(" ", "%20")) == model


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_needed_file_is_refused_by_name(model: Path, missing: str) -> None:
    (model / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing.replace("model.safe", r"\*\.safe")):
        resolve_model(str(model))


@pytest.mark.parametrize("source", ["/nowhere", "embedded://other", "embedded://../demo", "file:///nowhere"])
def test_a_model_that_does_not_exist_is_not_found(source: str) -> None:
    with pytest.raises(ModelNotFound, match=source.replace(".", r"\.")):
        resolve_model(source)


@pytest.mark.parametrize("source", ["s3://bucket/name", "pvc://claim/path", "file://host/path"])
def test_a_source_that_this_server_does_not_load_is_refused_with_what_it_loads(source: str) -> None:
    with pytest.raises(BadConfiguration, match="file:///"):
        resolve_model(source)


def test_the_revision_changes_with_the_content(model: Path) -> None:
    before = content_revision(model)
    assert content_revision(model) == before
    (model / "model.safetensors").write_bytes(b"other")
    assert content_revision(model) != before
