"""How a program that starts others ends: by SIGTERM as by Ctrl-C, once, and with all that it started.

`make test` is a tree: make, tests.stages, pytest, a second pytest, and the processes of a cluster. Each level that is
told to end tells the next and waits for it. A level that is killed cannot do so: then the kernel sends SIGTERM to the
programs that it started through `started_program`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

PARENT = "LLMENDPOINT_PARENT"
"""Environment of a program that ends with the one that started it: that one's process id."""

_PR_SET_PDEATHSIG = 1
_ENDS_WITHIN_S = 120.0
"""What a test run needs to end a node with its pods, on a busy machine."""

_received: list[int] = []


def end_on_signals() -> None:
    """From now on the first SIGTERM or Ctrl-C raises KeyboardInterrupt, and later ones do not disturb the tidying up."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may; its own signals reach it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    _end_with_parent()


def exit_status() -> int:
    """That of a program that ended by a signal, as a shell shows it."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def _interrupt(number: int, _: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1:
        raise KeyboardInterrupt
    os.write(
        2,
        f"\nending already; what is left after kill -9 {os.getpid()} is removed by the next start\n".encode(),
    )


def _end_with_parent() -> None:
    """SIGTERM from the kernel when the program that started this one is killed."""
    parent = os.environ.get(PARENT)
    if parent != str(os.getppid()):
        return  # started by hand, or by a program that does not ask for it
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent != str(os.getppid()):
        raise KeyboardInterrupt  # it was killed in between


@contextmanager
def started_program(
    argv: Sequence[str], *, cwd: Path, output: IO[Any] | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of ours that has ended when the block is left: by itself, or by SIGTERM and with time to tidy up."""
    environment = {**(os.environ if env is None else env), PARENT: str(os.getpid())}
    streams = {} if output is None else {"stdout": output, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(argv, cwd=cwd, env=environment, **streams)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
