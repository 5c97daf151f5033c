"""The cluster's processes: started apart from this one, remembered on disk, ended by pid.

A pid alone is not trusted: after a reboot or a long time it may be somebody else's. The start time that the kernel
keeps for each process is remembered beside it, and only a process with both is ours.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import together
from tests.cluster.errors import NotStarted

_POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """A process that we started: `started` is its start time in clock ticks since boot."""

    name: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        _reap(self.pid)
        return self.started != 0 and start_time(self.pid) == self.started


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot, 0 when there is none (or only its zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _reap(pid: int) -> None:
    """Take the exit status of a child of this process, so that it does not stay a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


@dataclass(frozen=True)
class ProcessTable:
    """The processes of one instance: their records in `run`, their output in `logs`."""

    run: Path
    logs: Path

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        self.run.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env=None if env is None else dict(env),
            )
        process = Process(name, child.pid, start_time(child.pid))
        child.returncode = 0  # it outlives this program by design; `_reap` takes its status
        record = {"pid": process.pid, "started": process.started}
        (self.run / f"{name}.json").write_text(json.dumps(record))
        return process

    def all(self) -> list[Process]:
        records = sorted(self.run.glob("*.json"), key=lambda path: path.stat().st_mtime)
        return [Process(path.stem, **json.loads(path.read_text())) for path in records]

    def get(self, name: str) -> Process | None:
        return next((process for process in self.all() if process.name == name), None)

    def stop(self, *names: str, grace_s: float = 15.0) -> None:
        """End the named processes together: SIGTERM, then SIGKILL after the grace."""
        chosen = [process for process in self.all() if process.name in names]
        for process in chosen:
            send_signal(process, signal.SIGTERM)
        if not _wait(lambda: not any(p.alive for p in chosen), grace_s):
            for process in chosen:
                send_signal(process, signal.SIGKILL)
            _wait(lambda: not any(p.alive for p in chosen), 5.0)
        for process in chosen:
            (self.run / f"{process.name}.json").unlink(missing_ok=True)

    def wait_until(
        self, what: str, ready: Callable[[], bool], watched: Sequence[str], limit_s: float
    ) -> None:
        """Wait for `ready`, but no longer than the `watched` processes live."""
        processes = [process for process in self.all() if process.name in watched]
        deadline = time.monotonic() + limit_s
        while not ready():
            for process in processes:
                if not process.alive:
                    raise NotStarted(
                        f"{process.name} ended before {what}; its last words:\n{self.tail(process.name)}"
                    )
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{self.tail(name, 8)}" for name in watched)
                raise NotStarted(f"{what} did not happen within {limit_s:.0f} s\n{tails}")
            together.pause(_POLL_S)

    def tail(self, name: str, lines: int = 20) -> str:
        try:
            return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"


def send_signal(process: Process, number: int) -> None:
    """Signal a process if it is still the one that we started."""
    if process.alive:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            pass


def _wait(done: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
