"""Which files of a source make up a model, what is still missing of them, and what identifies their content.

No I/O: a listing comes in, decisions go out. docs/concepts/models.md explains them to users.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal, Protocol

SAFE_WEIGHTS = (("*.safetensors",), ("*.gguf",))
"""In order of preference: of a source that has both, only the first kind is taken."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
"""Formats that are pickles, or mostly so: loading one runs the code in it."""
BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""Configuration and tokenizer. No *.py: code is not loaded."""
MODULE = re.compile(r"\d+_[A-Za-z]+/config\.json")
"""How a model that embeds pools: a folder for each module that its modules.json names."""
NEEDED = (("config.json",), ("tokenizer.json",), ("*.safetensors", "*.gguf"))
"""What our own engine needs at the top of a model's folder: one of each."""
WHY_NEEDED = (
    "a model in transformers' layout has config.json, tokenizer.json and *.safetensors (save_pretrained writes them); beside a *.gguf lie the "
    "first two of the model that it was made of; and other weight formats are not loaded."
)
RECORD = ".llmendpoint.json"
"""The file beside a complete model that says what the model is made of."""

Algorithm = Literal["sha256", "git-sha1", "md5"]


class Hash(Protocol):
    """The methods of hashlib's hashes that are used here."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum of a file's content, in lower-case hexadecimal. `git-sha1` is that of a git blob: a header, then the
    content."""

    algorithm: Algorithm
    digest: str

    def begin(self, size: int) -> Hash:
        """A hash to feed the content of a file of `size` bytes into."""
        if self.algorithm == "git-sha1":
            return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        if self.algorithm == "md5":
            return hashlib.md5(usedforsecurity=False)
        return hashlib.sha256()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source. `path`: relative to the source. `size`: bytes. `tag`: changes with the content (an ETag or
    an object id). `checksum`: of the content, if the source states one."""

    path: str
    size: int
    tag: str
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a listing is not a model. `pickles`: spec.model.allowPickle would make it one."""

    message: str
    pickles: bool = False


def choose_files(listing: Sequence[SourceFile], allow_pickle: bool) -> tuple[SourceFile, ...] | Refusal:
    """The files to download, sorted by path. Weights in the top folder are preferred: deeper ones are usually copies in
    another format. Pickles are taken only with `allow_pickle`, and only if there are no other weights."""
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
        f
        for f in _matching(listing, BESIDE_WEIGHTS, top_first=False)
        if _folder(f.path) in folders | {""} or MODULE.fullmatch(f.path)
    ]
    return tuple(sorted({*weights, *beside}, key=lambda file: file.path))


def lacking(paths: Iterable[str]) -> str | None:
    """What our own engine needs and these files do not have, in words; None if it can load them."""
    found = list(paths)
    for patterns in NEEDED:
        if not any("/" not in path and fnmatch(path, pattern) for path in found for pattern in patterns):
            return f"{' or '.join(patterns)}; {WHY_NEEDED}"
    files = [path for path in found if "/" not in path and fnmatch(path, "*.gguf")]
    if len(files) > 1 and not any(fnmatch(path, "*.safetensors") for path in found):
        return f"single *.gguf but {len(files)}: each is a model, or a part of one; keep the one to serve, in one piece."
    return None


def is_safe_path(path: str) -> bool:
    """Whether a file of this name lies inside its folder, wherever the folder is."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    return plain and "\\" not in path and "\0" not in path and len(path.encode()) < 1024


def manifest_hash(listing: Iterable[SourceFile]) -> str:
    """Identifies the content of a source that has no commits: 40 hexadecimal digits of the SHA-256 over `path NUL tag
    NUL size LF` of each file, by path. docs/contribute/contracts.md has the same sentence."""
    digest = hashlib.sha256()
    for file in sorted(listing, key=lambda file: file.path):
        digest.update(f"{file.path}\0{file.tag}\0{file.size}\n".encode())
    return digest.hexdigest()[:40]


def etag_checksum(etag: str, headers: Mapping[str, str]) -> Checksum | None:
    """The MD5 in an S3 ETag. None if the ETag is no MD5: the object was uploaded in parts, or encrypted with a key that
    is not S3's own. `headers`: those of the object, with lower-case names."""
    managed = headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
    customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    if not re.fullmatch(r"[0-9a-f]{32}", etag) or not managed or customer:
        return None
    return Checksum("md5", etag)


def missing_bytes(files: Iterable[SourceFile], present: Mapping[str, int]) -> int:
    """Bytes still to download. `present`: bytes on disk by path, of partial files too."""
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
