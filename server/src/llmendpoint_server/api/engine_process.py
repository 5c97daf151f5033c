"""The engine as a process of the operating system: how it is started, and how its end is awaited."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from llmendpoint_server.resources import usable_threads

ENGINE_COMMAND = (sys.executable, "-m", "llmendpoint_server.engine")
ENGINE_ENVIRONMENT = {
    # Otherwise OpenMP's threads spin while they wait for each other. Beside another busy pod on the same cores a step
    # then takes 20 times as long (8 tokens/s of the demo model instead of 150).
    "OMP_WAIT_POLICY": "PASSIVE",
    # Otherwise transformers draws progress bars between the JSON lines of the log.
    "TQDM_DISABLE": "1",
    # The engine gets a folder. Nothing in it is to call the hub.
    "HF_HUB_OFFLINE": "1",
}
"""Defaults; this process's environment overrides them."""
EXIT_WAIT_S = 20.0
"""After the connection is lost, the process has this long to exit. Then it is killed."""


def spawn(command: Sequence[str], their_end: socket.socket) -> subprocess.Popen[bytes]:
    environment = ENGINE_ENVIRONMENT | {"OMP_NUM_THREADS": str(usable_threads())} | os.environ
    # Its own session: Ctrl-C in a terminal must reach this process only, which then drains.
    descriptor = their_end.fileno()
    return subprocess.Popen(
        [*command, "--socket-fd", str(descriptor)], pass_fds=[descriptor],
        stdin=subprocess.DEVNULL, start_new_session=True, env=environment,
    )  # fmt: skip


def exit_code(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """None if the process is still alive after `seconds`."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def reap(process: subprocess.Popen[bytes]) -> int:
    """Its exit code. It is killed if it does not exit in time."""
    try:
        return process.wait(EXIT_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
