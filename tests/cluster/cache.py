"""Where built pieces are kept between runs, and how they are trusted.

An artifact lives in a folder named by the hash of everything that went into it. It is used again only when its
bytes still have the SHA-256 that was written down when it was made; anything else is made anew.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.cluster import together

_RECORD = ".contents"
_LOCK_POLL_S = 0.1


def root() -> Path:
    """The folder of all caches, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "llmendpoint"


def digest_of(*parts: str | bytes | Path) -> str:
    """One hash over strings and over files with their names; the order of `parts` counts."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            body = f"file {part.name} {file_digest(part)}".encode()
        else:
            body = part.encode() if isinstance(part, str) else part
        total.update(len(body).to_bytes(8, "big") + body)
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(folder: Path, suffixes: Iterable[str] = ()) -> str:
    """One hash over the files below `folder` (names, bytes), without what interpreters leave there."""
    wanted = tuple(suffixes)
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and (not wanted or path.suffix in wanted)
    )
    return digest_of(*(f"{path.relative_to(folder)} {file_digest(path)}" for path in files))


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the machine-wide lock `name`, so that two builders of one thing do not work side by side."""
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as stream:
        while not _locked(stream):
            together.pause(_LOCK_POLL_S)
        yield


def _locked(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def obtain(kind: str, key: str, make: Callable[[Path], None], *, huge: bool = False) -> Path:
    """The folder of the artifact `kind` made from inputs with hash `key`; `make(folder)` fills it when needed.

    Of a `huge` one (gigabytes) sizes are compared instead of bytes, since reading it all costs more than it guards.
    """
    fingerprint = _size if huge else file_digest
    folder = root() / kind / key[:20]
    if is_intact(folder, fingerprint):
        return folder
    with exclusive(f"{kind}-{key[:20]}"):
        if is_intact(folder, fingerprint):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            make(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _write_record(partial, fingerprint)
        partial.rename(folder)
        return folder


def is_intact(folder: Path, fingerprint: Callable[[Path], str] = file_digest) -> bool:
    """True when every file that was recorded is there as it was made, and no other."""
    try:
        lines = (folder / _RECORD).read_text().splitlines()
    except FileNotFoundError:
        return False
    recorded = dict(line.split("  ", 1)[::-1] for line in lines)
    present = {str(path.relative_to(folder)) for path in _files(folder)}
    return present == set(recorded) and all(
        fingerprint(folder / name) == value for name, value in recorded.items()
    )


def forget_older(kind: str, keep: Path, count: int = 3) -> None:
    """Remove all but the `count` newest artifacts of a kind; `keep` always stays."""
    folders = sorted((root() / kind).glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[count:]:
        if folder != keep and not folder.name.endswith(".partial"):
            shutil.rmtree(folder, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and p.name != _RECORD]


def _size(path: Path) -> str:
    return str(path.stat().st_size)


def _write_record(folder: Path, fingerprint: Callable[[Path], str]) -> None:
    lines = [f"{fingerprint(path)}  {path.relative_to(folder)}" for path in sorted(_files(folder))]
    (folder / _RECORD).write_text("\n".join(lines) + "\n")
