"""Parts that run side by side and end together.

When one part fails, or the program is told to end, the others are ended at once: their programs get SIGTERM and soon
after SIGKILL, their pauses end, and they raise `Stopped`. So a failure is the last thing that is printed, and not
something between the lines of work that goes on for minutes.
"""

import contextvars
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from tests.cluster.errors import Stopped

_GRACE_S = 5.0
_POLL_S = 0.1


class Parts:
    """What one call of `run_together` has under way. Parts of parts end with them."""

    def __init__(self, within: "Parts | None") -> None:
        self._within = within
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set() or (self._within is not None and self._within.stopped)

    def stop(self) -> None:
        self._stopped.set()


_current: contextvars.ContextVar[Parts | None] = contextvars.ContextVar("parts", default=None)


def run_together(*calls: Callable[[], Any]) -> list[Any]:
    """The results of `calls`, each made in a thread of its own. The first failure ends all, and is raised."""
    parts = Parts(_current.get())

    def call_in_parts(call: Callable[[], Any]) -> Any:
        _current.set(parts)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(contextvars.copy_context().run, call_in_parts, call) for call in calls]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # Ctrl-C too
            if not all(future.done() and future.exception() is None for future in futures):
                parts.stop()
    return _results(futures)


def _results(futures: Sequence["Future[Any]"]) -> list[Any]:
    """`Stopped` is raised only when nothing else was: it is a consequence."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, Stopped)), errors[0])
    return [future.result() for future in futures]


def check() -> None:
    """Raises Stopped when the parts that this thread is one of are being ended."""
    parts = _current.get()
    if parts is not None and parts.stopped:
        raise Stopped("stopped, because another part failed or the program is ending")


@contextmanager
def apart() -> Iterator[None]:
    """What is done here is not one of the parts: tidying up goes on while they are being ended."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def pause(seconds: float) -> None:
    """Sleep, but no longer than the parts go on."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        check()
        time.sleep(min(left, _POLL_S))
    check()


@contextmanager
def ended_with_us(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """The process, which leads a group of its own, ends when its parts are ended and when the block is left early."""
    parts, over = _current.get(), threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            if parts is not None and parts.stopped:
                end_group(process)
                return

    watcher = threading.Thread(target=watch, daemon=True) if parts is not None else None
    if watcher:
        watcher.start()
    try:
        yield
    except BaseException:
        end_group(process)
        raise
    finally:
        over.set()
        if watcher:
            watcher.join()


def end_group(process: "subprocess.Popen[Any]") -> None:
    """SIGTERM to the process and all of its group, SIGKILL to what is left of it after some seconds."""
    _signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while _group_lives(process) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _signal_group(process.pid, signal.SIGKILL)


def _group_lives(process: "subprocess.Popen[Any]") -> bool:
    process.poll()
    return _signal_group(process.pid, 0)


def _signal_group(pid: int, number: int) -> bool:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
