"""Long commands that are never silent: what runs, for how long, and what it said when it failed."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import CommandFailed

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
) -> str:
    """Run a command to its end and give its standard output; a failure carries the end of all it printed."""
    command = [str(part) for part in argv]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=None if env is None else dict(env),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=timeout,
                check=False,
            )
        except FileNotFoundError as error:
            raise CommandFailed(command, 127, f"{command[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(command, 124, f"still running after {timeout:.0f} s") from error
        if done.returncode:
            errors.seek(0)
            raise CommandFailed(command, done.returncode, done.stdout[-4000:] + errors.read()[-8000:])
        return done.stdout
