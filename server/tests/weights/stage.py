"""A model at a source that goes wrong as a test says, and the volume that it is to come to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmendpoint_server.weights.download import fetch
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.progress import Progress
from llmendpoint_server.weights.sigv4 import Keys
from llmendpoint_server.weights.sources import open_source
from tests.file_server import Faults
from tests.hub_stub import MODEL, Hub
from tests.s3_stub import BUCKET, ObjectStore

COMMIT = "1" * 40
WEIGHTS = "model.safetensors"
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    WEIGHTS: bytes(range(256)) * 4096,
    "README.md": b"hello",
    "old.bin": b"a pickle",
    "tokenizer_config.json": b"{}",
    "vocab.txt": b"a\nb\n",
}
WANTED = {name: content for name, content in FILES.items() if name not in ("README.md", "old.bin")}
KEYS = Keys("AK", "secret")


@dataclass
class Stage:
    """One source and one volume. `sleeps` are the pauses that a download made."""

    source: str
    root: Path
    environment: dict[str, str]
    faults: Faults
    server: Hub | ObjectStore
    sleeps: list[float]

    @property
    def place(self) -> Place:
        return Place(self.root, "demo")

    @property
    def key(self) -> str:
        """What the server calls the weights."""
        return WEIGHTS if isinstance(self.server, Hub) else f"demo/{WEIGHTS}"

    def resolve(self, allow_pickle: bool = False) -> str:
        return open_source(self.source).resolve(allow_pickle)

    def fetch(self, revision: str | None = None, allow_pickle: bool = False) -> Progress:
        progress, revision = Progress(), revision or self.resolve(allow_pickle)
        fetch(open_source(self.source), revision, self.place, allow_pickle, progress, self.sleeps.append)
        return progress

    def start(self, *more: str) -> subprocess.Popen[str]:
        """The command itself."""
        command = [sys.executable, "-m", "llmendpoint_server.weights", "fetch", "--source", self.source]
        command += ["--revision", self.resolve(), "--root", str(self.root), "--name", "demo", *more]
        environment = {**os.environ, **self.environment}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def content(self) -> dict[str, bytes]:
        """The model's files; the record is not one."""
        final = self.place.final
        return {p.name: p.read_bytes() for p in final.iterdir() if not p.name.startswith(".")}


def make_hub(tmp_path: Path, files: dict[str, bytes]) -> tuple[Hub, str, dict[str, str]]:
    folder = tmp_path / "commit"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hub = Hub({COMMIT: folder}, main=COMMIT)
    hub.token = "hf_secret"
    return hub, f"hf://{MODEL}", {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token}


def make_store(files: dict[str, bytes]) -> tuple[ObjectStore, str, dict[str, str]]:
    objects = {f"demo/{name}": content for name, content in files.items()}
    store = ObjectStore(objects | {"demo-2/model.safetensors": b"another"}, keys=KEYS)
    environment = {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_REGION": store.region,
        "AWS_ACCESS_KEY_ID": KEYS.access,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret,
    }
    return store, f"s3://{BUCKET}/demo", environment


def make_stage(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes] = FILES
) -> Stage:
    """`kind` is hf or s3. Close its server afterwards."""
    server: Hub | ObjectStore
    if kind == "hf":
        server, source, environment = make_hub(tmp_path, files)
    else:
        server, source, environment = make_store(files)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Stage(source, tmp_path / "volume", environment, server.faults, server, [])


def log_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and the cause in the last line of the log."""
    _, said = process.communicate(timeout=60)
    return process.returncode, str(json.loads(said.strip().splitlines()[-1])["event"])
