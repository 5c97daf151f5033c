"""Models on a volume: `<root>/<name>` is complete, `<root>/.partial-<name>` is being downloaded.

A complete model appears by a rename, so that no reader sees half of one. Its record says what it is made of.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from llmendpoint_server.errors import BadConfiguration, LoadError, NoSpace
from llmendpoint_server.weights.plan import RECORD, SourceFile, human, missing_bytes

PART = ".part"
"""The suffix of an incomplete file."""
LOCK_POLL_S = 0.5


class Place:
    """The folders of one model on a volume."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.final = root / name
        self.partial = root / f".partial-{name}"

    def complete(self) -> bool:
        """Whether every file that the record names exists in its size."""
        try:
            files = json.loads((self.final / RECORD).read_text())["files"]
            return all((self.final / path).stat().st_size == size for path, size in files.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def prepare(self) -> None:
        """Make a folder to download into, with what an earlier attempt left. A model that is no longer whole is moved
        back into it."""
        if self.final.exists():
            shutil.rmtree(self.partial, ignore_errors=True)
            self.final.rename(self.partial)
        self.partial.mkdir(parents=True, exist_ok=True)

    def present(self, files: Sequence[SourceFile]) -> dict[str, int]:
        """Bytes on disk by path."""
        found = {file.path: max(_size(self.partial / file.path), _size(self.part(file))) for file in files}
        return {path: size for path, size in found.items() if size}

    def part(self, file: SourceFile) -> Path:
        """The path of the file while it is incomplete."""
        return self.partial / (file.path + PART)

    def check_space(self, files: Sequence[SourceFile]) -> None:
        """Raises NoSpace with the free and the missing bytes."""
        needed = missing_bytes(files, self.present(files))
        if needed > shutil.disk_usage(self.root).free:
            raise self._no_space(needed)

    def failed(self, error: OSError, needed: int) -> LoadError:
        """The error for a failed write to the volume. `needed`: bytes of the file that are still to come."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._no_space(needed)
        return BadConfiguration(
            f"the volume at {self.root} cannot be written by user {os.getuid()}: {error.strerror or error}; "
            "docs/concepts/models.md says what it needs"
        )

    def _no_space(self, needed: int) -> NoSpace:
        free = human(shutil.disk_usage(self.root).free)
        return NoSpace(
            f"the volume has {free} free, and {human(needed)} are still to come; enlarge it, or make room"
        )

    def finish(self, source: str, revision: str, files: Sequence[SourceFile]) -> None:
        """Write the record and make the model visible."""
        record = {"source": source, "revision": revision, "files": {file.path: file.size for file in files}}
        wanted = {*record["files"], RECORD}
        for path in [p for p in self.partial.rglob("*") if p.is_file()]:
            if str(path.relative_to(self.partial)) not in wanted:
                path.unlink()
        with (self.partial / RECORD).open("w") as file:
            json.dump(record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        self.partial.rename(self.final)

    def remove(self) -> None:
        """Remove everything of this model."""
        gone = self.root / f".removed-{self.name}"
        for folder in (self.final, self.partial):
            if folder.exists():
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)
                shutil.rmtree(gone)
        shutil.rmtree(gone, ignore_errors=True)
        self._lock_file.unlink(missing_ok=True)

    @property
    def _lock_file(self) -> Path:
        return self.root / f".lock-{self.name}"

    @contextmanager
    def lock(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """One download at a time on this machine, and across machines if the file system has locks. If it has none, the
        operator starts only one for a shared cache, and two on one node detect each other's bytes and begin again."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock_file.open("a") as file:
            waited = False
            while not _locked(file.fileno()):
                if not waited:
                    structlog.get_logger().info("another process downloads this model", name=self.name)
                waited = True
                sleep(LOCK_POLL_S)
            yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        structlog.get_logger().warning("the volume knows no locks", error=str(error))
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
