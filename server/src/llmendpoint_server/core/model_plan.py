"""Which files of a source make up a model, what is still missing of them, and what names their content.

No I/O: a listing comes in, decisions go out. docs/concepts/models.md tells users what is decided here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal, Protocol

SAFE_WEIGHTS = (("*.safetensors",), ("*.gguf",))
"""In this order: of a source that has both, the first kind is taken."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
"""Formats that are pickles, or mostly so: to load one is to run what is in it."""
BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""Configuration and tokenizer. Never *.py: code is not loaded."""
RECORD = ".llmendpoint.json"
"""Beside a complete model's files: what it is made of."""

Algorithm = Literal["sha256", "git-sha1", "md5"]


class Hash(Protocol):
    """What hashlib's hashes can do."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Checksum:
    """Of a file's content, lower-case hexadecimal. `git-sha1` is that of a git blob: a header, then the content."""

    algorithm: Algorithm
    digest: str

    def begin(self, size: int) -> Hash:
        """A hash to feed the content into, of a file of `size` bytes."""
        if self.algorithm == "git-sha1":
            return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        if self.algorithm == "md5":
            return hashlib.md5(usedforsecurity=False)
        return hashlib.sha256()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source: its path relative to the source, bytes, and what its content must hash to where the source
    says so. `tag` changes with the content (an ETag or an object id)."""

    path: str
    size: int
    tag: str
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a listing is not a model. `pickles`: it would be one with spec.model.allowPickle."""

    message: str
    pickles: bool = False


def choose_files(listing: Sequence[SourceFile], allow_pickle: bool) -> tuple[SourceFile, ...] | Refusal:
    """The files to download, by path. Weights of the top folder are taken where there are some: deeper ones are copies
    in another format, as a rule. Pickles only where nothing else is there, and with `allow_pickle`."""
    unsafe = [file.path for file in listing if not is_safe_path(file.path)]
    if unsafe:
        return Refusal(f"the source has a file named {unsafe[0]!r}, which leads out of the model's folder")
    weights = next(filter(None, (_matching(listing, kind) for kind in SAFE_WEIGHTS)), [])
    pickles = _matching(listing, PICKLES)
    if not weights and pickles and not allow_pickle:
        names = ", ".join(file.path for file in pickles[:3]) + (", …" if len(pickles) > 3 else "")
        return Refusal(
            f"all weights are pickles ({names}), and to load a pickle is to run what is in it", True
        )
    weights = weights or pickles
    if not weights:
        return Refusal("there are no weights: neither *.safetensors nor *.gguf")
    folders = {_folder(file.path) for file in weights}
    beside = [
        f for f in _matching(listing, BESIDE_WEIGHTS, top_first=False) if _folder(f.path) in folders | {""}
    ]
    return tuple(sorted({*weights, *beside}, key=lambda file: file.path))


def is_safe_path(path: str) -> bool:
    """Whether a file of that name lies inside its folder, wherever that is."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    return plain and "\\" not in path and "\0" not in path and len(path.encode()) < 1024


def manifest_hash(listing: Iterable[SourceFile]) -> str:
    """What names the content of a source that has no commits: 40 hexadecimal digits of the SHA-256 over
    `path NUL tag NUL size LF` of each file, by path. docs/contribute/contracts.md has the same sentence."""
    digest = hashlib.sha256()
    for file in sorted(listing, key=lambda file: file.path):
        digest.update(f"{file.path}\0{file.tag}\0{file.size}\n".encode())
    return digest.hexdigest()[:40]


def etag_checksum(etag: str, headers: Mapping[str, str]) -> Checksum | None:
    """The MD5 that an S3 ETag is: not of an object that was uploaded in parts, nor of one encrypted with a key that is
    not S3's own. `headers` are those of the object, with lower-case names."""
    managed = headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
    customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    if not re.fullmatch(r"[0-9a-f]{32}", etag) or not managed or customer:
        return None
    return Checksum("md5", etag)


def missing_bytes(files: Iterable[SourceFile], present: Mapping[str, int]) -> int:
    """Bytes that are still to come; `present` are those on disk by path, parts of files too."""
    return sum(max(0, file.size - present.get(file.path, 0)) for file in files)


def human(size: int) -> str:
    """Bytes as people write them: `15.3 GiB`."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def _matching(
    listing: Sequence[SourceFile], patterns: Iterable[str], top_first: bool = True
) -> list[SourceFile]:
    found = [f for f in listing if any(fnmatch(f.path.rpartition("/")[2], p) for p in patterns)]
    top = [file for file in found if "/" not in file.path]
    return top if top_first and top else found


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
