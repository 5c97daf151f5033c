"""The folder of files: `files/ID`, each written whole or not at all, and `new/` for what is being written."""

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from llmendpoint_batch.errors import StorageFull

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


class Folder:
    def __init__(self, data: Path) -> None:
        self.files, self.new = data / "files", data / "new"
        for folder in (self.files, self.new):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, file_id: str) -> Path:
        return self.files / file_id

    def begin(self, file_id: str) -> "FolderWriting":
        return FolderWriting(self.new / file_id, self.path(file_id))

    def open(self, file_id: str) -> BinaryIO:
        return self.path(file_id).open("rb", buffering=1 << 20)

    def read(self, file_id: str, offset: int, length: int) -> bytes:
        """Shorter at the file's end."""
        descriptor = os.open(self.path(file_id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)

    def remove(self, file_id: str) -> None:
        self.path(file_id).unlink(missing_ok=True)

    def sweep(self, known: Collection[str]) -> int:
        """Deletes what a killed process left behind; returns how many files."""
        left = [*self.new.iterdir(), *(path for path in self.files.iterdir() if path.name not in known)]
        for path in left:
            path.unlink()
        return len(left)


class FolderWriting:
    """A file that is being written. Without `keep` nothing of it stays. Raises StorageFull."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path, self._target = path, target
        self.size = 0
        self._file: BinaryIO = self._open()

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("wb", buffering=1 << 20)
        except OSError as error:
            raise _full(error) from error

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise _full(error) from error
        self.size += len(data)

    def keep(self) -> None:
        """The file is on the disk under its name, also after a loss of power."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._target)
            _sync_folder(self._target.parent)
        except OSError as error:
            raise _full(error) from error

    def drop(self) -> None:
        """Does nothing after `keep`."""
        try:
            self._file.close()
        except OSError:
            pass  # the rest of a file that is not wanted did not find room
        self._path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _full(error: OSError) -> Exception:
    return StorageFull(f"a file cannot be written: {error.strerror}") if error.errno in FULL else error
