"""Long commands that are never silent: what runs, for how long, and what it said when it failed."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import downloads
from tests.cluster import together
from tests.cluster.errors import CommandFailed, Stopped

_EVERY_S = 10.0
_print_lock = threading.Lock()


def say(text: str) -> None:
    """One line for the person who waits."""
    with _print_lock:
        print(f"  {text}", file=sys.stdout, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Name a step, then say every few seconds that it still runs, then how long it took."""
    started = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_EVERY_S):
            say(f"{what}: {time.monotonic() - started:.0f} s so far")

    ticker = threading.Thread(target=beat, daemon=True)
    ticker.start()
    try:
        yield
    except (Stopped, KeyboardInterrupt):
        say(f"{what}: stopped after {time.monotonic() - started:.1f} s")
        raise
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - started:.1f} s")
        raise
    else:
        say(f"{what}: {time.monotonic() - started:.1f} s")
    finally:
        done.set()
        ticker.join()


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float = 3600,
    to_its_end: bool = False,
) -> str:
    """Run a command and give its standard output; a failure carries the end of all it printed.

    It ends with the parts that it is one of, and with Ctrl-C. `to_its_end`: then it is waited for instead, since it
    changes the machine and must not be left half done.
    """
    together.check()
    command = [str(part) for part in argv]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise CommandFailed(command, 127, f"{command[0]} is not installed") from error
        output = _awaited(process, stdin, timeout, to_its_end)
        if process.returncode:
            together.check()
            errors.seek(0)
            raise CommandFailed(command, process.returncode, output[-4000:] + errors.read()[-8000:])
        return output


def _awaited(process: "subprocess.Popen[str]", stdin: str | None, timeout: float, to_its_end: bool) -> str:
    """Standard output of a process that has ended."""
    if to_its_end:
        try:
            return process.communicate(stdin)[0]
        except KeyboardInterrupt:
            process.communicate()
            raise
    try:
        with together.ended_with_us(process):
            return process.communicate(stdin, timeout=timeout)[0]
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(
            [str(part) for part in error.cmd], 124, f"still running after {timeout:.0f} s"
        ) from error


def download(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """`run` for a command that downloads: tried again while the network fails for a moment."""
    return downloads.try_again(
        lambda: run(argv, cwd=cwd, env=env, stdin=stdin),
        lambda error: error.output if isinstance(error, CommandFailed) else None,
        say,
        together.pause,
    )
