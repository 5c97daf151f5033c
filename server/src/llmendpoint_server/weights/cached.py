"""The hf:// models of the server's `--model`, in a cache under HF_HOME.

The download is that of `llmendpoint-model`. A model lies in a folder with its commit in its name, so that a commit that
is there already needs no hub.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import structlog

from llmendpoint_server.errors import (
    AccessDenied,
    BadConfiguration,
    FormatRefused,
    LoadError,
    ModelNotFound,
    ModelUnavailable,
)
from llmendpoint_server.weights.download import fetch
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.plan import lacking
from llmendpoint_server.weights.progress import Progress
from llmendpoint_server.weights.sources import HubSource, hub_home


def cached_model(repository: str, revision: str | None) -> Path:
    """The folder of `org/name` at a commit, or at what a branch points to now (None: main); downloaded if need be.

    Raises BadConfiguration, ModelNotFound, ModelUnavailable, or LoadError if the cache cannot be filled. So the exit
    codes are those of a server, not the finer ones of `llmendpoint-model`.
    """
    if repository.count("/") != 1 or "@" in repository:
        raise BadConfiguration(
            f"--model hf://{repository}: write hf://<organisation>/<name>, and its commit as --revision."
        )
    try:
        return _download(repository, revision or "main")
    except (ModelNotFound, ModelUnavailable):
        raise
    except AccessDenied as error:
        raise ModelNotFound(f"{error}; a private model needs HF_TOKEN") from error
    except FormatRefused as error:
        raise ModelNotFound(str(error)) from error
    except (LoadError, OSError) as error:
        raise LoadError(f"--model hf://{repository}: {error}") from error


def _download(repository: str, revision: str) -> Path:
    source, root = HubSource(repository, revision), hub_home() / "llmendpoint"
    pointer = root / f".branch-{_file_name(repository, revision)}"
    is_commit = re.fullmatch(r"[0-9a-f]{40}", revision)
    commit = revision if is_commit else _commit(source, revision, pointer)
    place = Place(root, _file_name(repository, commit))
    if not place.complete():
        if missing := lacking(file.path for file in source.files(commit, False)):
            raise ModelNotFound(f"{source.name} at {commit} has no {missing}")
        fetch(source, commit, place, allow_pickle=False, progress=Progress())
    if not (is_commit or (pointer.is_file() and pointer.read_text() == commit)):
        written = pointer.with_name(f"{pointer.name}.{os.getpid()}")
        written.write_text(commit)
        written.replace(pointer)
    return place.final


def _commit(source: HubSource, branch: str, pointer: Path) -> str:
    """The commit to which the branch points. If the hub does not answer: at the last download."""
    try:
        return source.resolve(allow_pickle=False)
    except ModelUnavailable as error:
        if not pointer.is_file():
            raise
        commit = pointer.read_text()
        structlog.get_logger().warning(
            "the hub does not answer, so the commit of the last download is loaded",
            source=source.name, branch=branch, revision=commit, error=str(error),
        )  # fmt: skip
        return commit


def _file_name(repository: str, revision: str) -> str:
    return f"{repository}@{revision}".replace("/", "--")
