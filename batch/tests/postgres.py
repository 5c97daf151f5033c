"""A PostgreSQL of the tests' own: its data in a temporary folder, listening on 127.0.0.1 alone."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.ports import free_port

BINARIES = ("postgres", "initdb", "pg_ctl")
PASSWORD = "a%2Fsecret"
"""As a URL has it."""


@dataclass
class Server:
    """`user`: who runs it, where root runs the tests; PostgreSQL does not run as root."""

    folder: Path
    user: str | None
    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"d{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://llm:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = (
            f"-p {self.port} -k {self.folder} -c fsync=off -c full_page_writes=off -c shared_buffers=16MB"
        )
        self.run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-l",
            str(self.folder / "log"),
            "-o",
            options,
            "-w",
            "start",
        )

    def stop(self) -> None:
        """Without a word to anybody, as a crash."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def run(self, *command: str) -> None:
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, user=self.user, cwd=self.folder, timeout=60
        )


@contextmanager
def running_postgres() -> Iterator[Server]:
    missing = [name for name in BINARIES if shutil.which(name) is None]
    if missing:
        pytest.skip(f"PostgreSQL is not installed: {', '.join(missing)} are not in PATH")
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = Server(folder, user, free_port())
    try:
        (folder / "password").write_text(PASSWORD.replace("%2F", "/"))
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        server.run(
            "initdb", "-D", str(folder / "data"), "-U", "llm", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync",
            "--pwfile", str(folder / "password"),
        )  # fmt: skip
        server.start()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder)
