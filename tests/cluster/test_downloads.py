"""docs/contribute/test-bed.md: a network that fails for a moment costs a pause; what fails for good ends at once with its cause."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import downloads
from tests.cluster import progress
from tests.cluster.errors import CommandFailed

DNS = "go: proxy.example: dial tcp: lookup proxy.example on 10.0.0.2:53: read udp 10.0.0.9:41->10.0.0.2:53: i/o timeout"

PASSING = [
    DNS,
    "W: Failed to fetch http://deb.example/x  Temporary failure resolving 'deb.example'",
    "Could not resolve 'deb.example'",
    "  Caused by: failed to lookup address information: Temporary failure in name resolution",
    "read tcp 10.0.0.9:51->10.0.0.3:443: read: connection reset by peer",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "HTTP status server error (503 Service Unavailable) for url (https://index.example/simple/torch/)",
    "go: example.com/m@v1: reading https://proxy.example/m.zip: 502 Bad Gateway",
    "E: Failed to fetch http://deb.example/y  500  Internal Server Error",
    "ERROR: HTTP error 504 while getting https://index.example/x.whl",
    "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out.",
    "net/http: TLS handshake timeout",
    "unexpected EOF",
]
LASTING = [
    "go: example.com/m@v1: reading https://proxy.example/m.zip: 404 Not Found",
    "E: Failed to fetch http://deb.example/z  404  Not Found [IP: 10.0.0.3 80]",
    "HTTP status client error (404 Not Found) for url (https://index.example/simple/nothing/)",
    "verifying example.com/m@v1: checksum mismatch\n\nSECURITY ERROR",
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. unexpected EOF",
    "  × Failed to download `x==1`\n  ╰─▶ Hash mismatch for `x==1`",
    "E: Failed to fetch http://deb.example/z  Hash Sum mismatch",
    "403 Forbidden",
    "write /root/.cache/x: no space left on device",
    "x509: certificate signed by unknown authority",
    "./main.go:3:8: undefined: foo",
    "Connection reset by peer; then 404 Not Found",
    "",
]


@pytest.mark.parametrize("output", PASSING)
def test_a_failure_of_the_moment_is_known_by_its_words(output: str) -> None:
    assert downloads.passes_by_itself(output)


@pytest.mark.parametrize("output", LASTING)
def test_what_fails_the_same_way_again_is_not_tried_again(output: str) -> None:
    assert not downloads.passes_by_itself(output)


def test_the_cause_is_the_line_that_names_the_failure() -> None:
    assert downloads.cause_in(f"step 1\n{DNS}\nsubprocess exited with status 1\n") == DNS
    assert downloads.cause_in("step 1\nundefined: foo\n") == "undefined: foo"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES_S", (0.0, 0.0, 0.0))


class Server:
    """A program in place of `go`, `uv` or `apt-get`: fails so many times with `message`, then succeeds."""

    def __init__(self, folder: Path, failures: int, message: str) -> None:
        self.path, self._calls = folder / "program", folder / "calls"
        self._calls.touch()
        self.path.write_text(
            f"""#!/bin/sh
echo called >> {self._calls}
if [ $(wc -l < {self._calls}) -le {failures} ]; then echo "{message}" >&2; exit 1; fi
echo downloaded
"""
        )
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines())


@pytest.mark.usefixtures("pauses")
def test_a_download_that_fails_twice_is_made_by_the_third_try(tmp_path: Path) -> None:
    server = Server(tmp_path, 2, DNS)
    assert progress.download([server.path]).strip() == "downloaded"
    assert server.calls == 3


@pytest.mark.usefixtures("pauses")
def test_tries_are_bounded_and_the_last_failure_is_told(tmp_path: Path) -> None:
    server = Server(tmp_path, 99, DNS)
    with pytest.raises(CommandFailed, match="i/o timeout"):
        progress.download([server.path])
    assert server.calls == len(downloads.PAUSES_S) + 1


@pytest.mark.usefixtures("pauses")
def test_a_file_that_is_not_there_is_asked_for_once(tmp_path: Path) -> None:
    server = Server(tmp_path, 99, "reading https://proxy.example/m.zip: 404 Not Found")
    with pytest.raises(CommandFailed, match="404 Not Found"):
        progress.download([server.path])
    assert server.calls == 1


def test_pauses_grow() -> None:
    slept: list[float] = []
    with pytest.raises(OSError, match="no server"):
        downloads.try_again(fail, lambda _: DNS, lambda _: None, slept.append)
    assert slept == sorted(set(slept))
    assert len(slept) >= 3


def fail() -> None:
    raise OSError("no server")


@pytest.mark.parametrize(
    ("message", "code", "calls"), [("503 Service Unavailable", 0, 2), ("404 Not Found", 1, 1)]
)
def test_the_program_for_shell_scripts_decides_by_the_same_words(
    tmp_path: Path, message: str, code: int, calls: int
) -> None:
    server = Server(tmp_path, 1, message)
    quick = "import sys; from tests import downloads; downloads.PAUSES_S = (0.0,); sys.exit(downloads.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", quick, server.path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, server.calls) == (code, calls)
    assert message in done.stdout


def test_it_runs_where_nothing_is_installed(tmp_path: Path) -> None:
    """`make venv` calls it with the system's Python, from any folder."""
    server = Server(tmp_path, 0, "")
    argv = [sys.executable, "-I", "-S", str(downloads.__file__), str(server.path)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": os.environ["PATH"]}
    )
    assert (done.returncode, done.stdout) == (0, "downloaded\n"), done.stderr
