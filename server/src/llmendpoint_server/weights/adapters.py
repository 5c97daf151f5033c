"""Where a LoRA adapter's files are: the folder that a source means, downloaded if need be.

An adapter is what peft's `save_pretrained` writes: adapter_config.json and adapter_model.safetensors. Of a source nothing else is
taken.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llmendpoint_server.errors import BadConfiguration, FormatRefused, ModelNotFound
from llmendpoint_server.limits import ADAPTER_BYTES_MAX, ADAPTER_CONFIG_BYTES_MAX, ADAPTERS_MAX
from llmendpoint_server.weights.download import fetch
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.plan import Checksum, SourceFile, human
from llmendpoint_server.weights.progress import Progress
from llmendpoint_server.weights.sources import Source, hub_home, open_source
from llmendpoint_server.weights.web import Reply

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MOST_BYTES = {CONFIG: ADAPTER_CONFIG_BYTES_MAX, WEIGHTS: ADAPTER_BYTES_MAX}
PICKLE = "adapter_model.bin"
CLAIMS = Path("/models")
"""The operator mounts each claim here, in a folder with its name."""


def locate_adapter(source: str) -> Path:
    """May take as long as a download. Raises LoadError: ModelNotFound, FormatRefused for a pickle, BadConfiguration for a source
    that cannot be, ModelUnavailable if the source does not answer, and others of a download."""
    scheme, separator, rest = source.partition("://")
    if not separator:
        return check_adapter(Path(source), source)
    if scheme == "file":
        url = urlsplit(source)
        if url.netloc not in ("", "localhost"):
            raise BadConfiguration(
                f"{source}: a file URL has three slashes, as in file:///{url.netloc}{url.path}"
            )
        return check_adapter(Path(unquote(url.path)), source)
    if scheme == "pvc":
        if not rest.partition("/")[0] or ".." in rest.split("/"):
            raise BadConfiguration(f"{source}: write pvc://<claim>/<path>")
        return check_adapter(CLAIMS / rest, source)
    if scheme in ("hf", "s3"):
        return check_adapter(_downloaded(source), source)
    raise BadConfiguration(
        f"{source}: {scheme}:// is no source of adapters; use hf://org/name@revision, s3://bucket/prefix, pvc://claim/path, "
        "file:///path or a plain path"
    )


def check_adapter(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        raise ModelNotFound(f"{source}: there is no folder {folder}")
    sizes = {name: _size(folder / name) for name in (CONFIG, WEIGHTS)}
    if sizes[WEIGHTS] is None and _size(folder / PICKLE) is not None:
        raise FormatRefused(
            f"{source}: its weights are a pickle ({PICKLE}), and to load one is to run what is in it; save them as {WEIGHTS}"
        )
    for name, size in sizes.items():
        if size is None:
            raise ModelNotFound(f"{source}: {folder} has no {name}, which peft's save_pretrained writes")
        _check_size(source, name, size)
    return folder.resolve()


def _check_size(source: str, name: str, size: int) -> None:
    if size > MOST_BYTES[name]:
        raise BadConfiguration(
            f"{source}: {name} has {human(size)}; an adapter's has at most {human(MOST_BYTES[name])}"
        )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


class _FilesOfAnAdapter:
    """A source without the files that no adapter needs."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name

    def resolve(self, allow_pickle: bool) -> str:
        return self._source.resolve(allow_pickle)

    def files(self, revision: str, allow_pickle: bool) -> tuple[SourceFile, ...]:
        found = tuple(f for f in self._source.files(revision, allow_pickle) if f.path in MOST_BYTES)
        for name in MOST_BYTES:
            if name not in [file.path for file in found]:
                raise ModelNotFound(f"{self.name} has no {name}, which peft's save_pretrained writes")
        for file in found:
            _check_size(self.name, file.path, file.size)
        return found

    def open(self, file: SourceFile, revision: str, offset: int) -> AbstractContextManager[Reply]:
        return self._source.open(file, revision, offset)

    def checksum(self, file: SourceFile, headers: Mapping[str, str]) -> Checksum | None:
        return self._source.checksum(file, headers)


def _downloaded(source: str) -> Path:
    files = _FilesOfAnAdapter(open_source(source))
    named = source.rpartition("@")[2]
    is_commit = source.startswith("hf://") and re.fullmatch(r"[0-9a-f]{40}", named)
    revision = named if is_commit else files.resolve(allow_pickle=False)
    root = hub_home() / "llmendpoint-adapters"
    place = Place(root, blake2b(f"{files.name}\0{revision}".encode(), digest_size=16).hexdigest())
    fetch(files, revision, place, allow_pickle=False, progress=Progress())
    _make_room(root, place)
    return place.final


def _make_room(root: Path, newest: Place) -> None:
    """As many downloads stay as there may be adapters: those of the last use."""
    newest.final.touch()
    found = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(found, key=lambda path: path.stat().st_mtime)[:-ADAPTERS_MAX]:
        shutil.rmtree(path, ignore_errors=True)
