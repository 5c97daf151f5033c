"""Downloads a model's files. Each is resumed where it broke off, hashed as it arrives, and retried while that helps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import BinaryIO, TypeVar

import structlog

from llmendpoint_server.errors import ModelCorrupt, ModelUnavailable
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.plan import Checksum, Hash, SourceFile, human
from llmendpoint_server.weights.progress import Progress
from llmendpoint_server.weights.sources import Source
from llmendpoint_server.weights.web import EndsEarly, Reply

CHUNK = 2**20
FILES_AT_ONCE = 4
PATIENCE = 6
"""Attempts in a row without a new byte before a file is given up. The Job then tries again later."""
LONGEST_PAUSE_S = 30.0
HEARS_S = 1.0
"""The main thread wakes this often: the kernel may give a signal to a download's thread, and Python handles it in the main one."""

Sleep = Callable[[float], None]
Found = TypeVar("Found")


def fetch(
    source: Source,
    revision: str,
    place: Place,
    allow_pickle: bool,
    progress: Progress,
    sleep: Sleep = time.sleep,
) -> None:
    """Make `place` complete; returns at once if it is. Raises a LoadError, after which the arrived files stay."""
    log = structlog.get_logger()
    with place.lock(sleep):
        if place.complete():
            log.info("the model is there already", source=source.name, folder=str(place.final))
            progress.done()
            return
        files = _patient(lambda: source.files(revision, allow_pickle), sleep)
        place.prepare()
        place.check_space(files)
        progress.begin(sum(file.size for file in files))
        log.info(
            "downloading", source=source.name, revision=revision, files=len(files), size=human(progress.total)
        )
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            jobs = [
                pool.submit(_File(source, revision, place, file, progress, sleep).fetch) for file in files
            ]
            ended, running = wait(jobs, HEARS_S, FIRST_EXCEPTION)
            while running and not any(job.exception() for job in ended):
                ended, running = wait(jobs, HEARS_S, FIRST_EXCEPTION)
            for job in running:
                job.cancel()
            for job in ended:
                job.result()
        place.finish(source.name, revision, files)
        progress.done()
        log.info("model downloaded", source=source.name, revision=revision, folder=str(place.final))


class _File:
    """The download of one file."""

    def __init__(
        self,
        source: Source,
        revision: str,
        place: Place,
        file: SourceFile,
        progress: Progress,
        sleep: Sleep,
    ) -> None:
        self._source, self._revision, self._place = source, revision, place
        self._file, self._progress, self._sleep = file, progress, sleep
        self._counted = 0

    def fetch(self) -> None:
        """Download until the file is whole, or was tried often enough."""
        final, part = self._place.partial / self._file.path, self._place.part(self._file)
        if final.is_file() and final.stat().st_size == self._file.size:
            self._count(self._file.size)
            return
        part.parent.mkdir(parents=True, exist_ok=True)
        failures, mismatches = 0, 0
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                found, wanted = self._attempt(part)
            except ModelUnavailable as error:
                failures = 1 if part.exists() and part.stat().st_size > before else failures + 1
                if failures >= PATIENCE:
                    raise self._given_up(part, error) from error
                structlog.get_logger().warning("tried again", file=self._file.path, error=str(error))
                self._sleep(min(2.0 ** (failures - 1), LONGEST_PAUSE_S))
                continue
            if wanted is None or found == wanted.digest:
                part.rename(final)
                return
            part.unlink()
            mismatches += 1
            if mismatches == 2:
                raise ModelCorrupt(
                    f"{self._source.name}: {self._file.path} hashes to {found}, twice, and the source says "
                    f"{wanted.digest} ({wanted.algorithm})"
                )

    def _attempt(self, part: Path) -> tuple[str, Checksum | None]:
        """Download the rest of the file. Returns its digest, and what that should be. Raises ModelUnavailable if some
        is missing."""
        file = self._file
        offset = part.stat().st_size if part.exists() else 0
        if offset > file.size:
            part.unlink()
            offset = 0
        if offset == file.size and offset:
            offset -= 1  # ask for one byte: the reply's headers name the hash
        with part.open("ab") as out, self._source.open(file, self._revision, offset) as reply:
            if offset and reply.status != 206:  # a server may send the whole file instead of the part
                offset = 0
            if out.tell() != offset:
                out.truncate(offset)
            checksum = self._source.checksum(file, reply.headers)
            digest = (checksum or Checksum("sha256", "")).begin(file.size)
            _feed(digest, part, offset)
            self._count(offset)
            offset += self._copy(reply, out, digest, file.size - offset)
            out.flush()
            os.fsync(out.fileno())
            written = os.fstat(out.fileno()).st_size
        if written != offset:
            raise ModelUnavailable(f"another process writes to {part}, on a volume that knows no locks")
        if offset < file.size:
            raise EndsEarly(f"{self._source.name}: {file.path} ends after {offset} of {file.size} bytes")
        return digest.hexdigest(), checksum

    def _copy(self, reply: Reply, out: BinaryIO, digest: Hash, most: int) -> int:
        copied = 0
        while copied < most and (chunk := reply.body.read1(min(CHUNK, most - copied))):
            try:
                out.write(chunk)
                out.flush()
            except OSError as error:
                raise self._place.failed(error, most - copied) from error
            digest.update(chunk)
            copied += len(chunk)
            self._count(self._counted + len(chunk))
        return copied

    def _count(self, size: int) -> None:
        self._progress.add(size - self._counted)
        self._counted = size

    def _given_up(self, part: Path, error: ModelUnavailable) -> ModelUnavailable | ModelCorrupt:
        """A file that always ends at the same byte is truncated at its source."""
        size = part.stat().st_size if part.exists() else 0
        if not isinstance(error, EndsEarly):
            return error
        return ModelCorrupt(
            f"{self._source.name}: {self._file.path} is truncated: {size} bytes arrive of {self._file.size} that the "
            "source lists"
        )


def _patient(work: Callable[[], Found], sleep: Sleep) -> Found:
    for attempt in range(PATIENCE - 1):
        try:
            return work()
        except ModelUnavailable as error:
            structlog.get_logger().warning("tried again", error=str(error))
            sleep(min(2.0**attempt, LONGEST_PAUSE_S))
    return work()


def _feed(digest: Hash, part: Path, size: int) -> None:
    with part.open("rb") as file:
        left = size
        while left and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
