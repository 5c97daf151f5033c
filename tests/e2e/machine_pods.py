"""Pods as processes of this machine: what a test stops or kills without asking Kubernetes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.product import Object


def processes_of(pod: Object, containing: bytes = b"") -> list[int]:
    """Process ids of a pod whose command line holds `containing`; AssertionError when there is none."""
    uid = pod["metadata"]["uid"]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
            groups = (folder / "cgroup").read_text().replace("_", "-")
        except OSError:
            continue
        if uid in groups and containing in arguments:
            found.append(int(folder.name))
    assert found, f"no process of pod {uid} has {containing!r} in its command line"
    return found


@contextmanager
def stopped(pod: Object) -> Iterator[None]:
    """Every process of the pod stands still (SIGSTOP) while the block runs."""
    processes = processes_of(pod)
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
