"""Waits that end, free ports, and what the kernel counts for a process."""

import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds: a bound for what takes milliseconds on an idle machine


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """The first true value of `condition`; connection errors count as not yet."""
    until, last = time.monotonic() + seconds, "false"
    while time.monotonic() < until:
        try:
            if value := condition():
                return value
        except (OSError, http.client.HTTPException) as error:
            last = repr(error)
        time.sleep(0.01)
    raise TimeoutError(f"after {seconds} s still not: {what} (last: {last})")


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def most_resident_bytes(pid: int) -> int:
    """The most that it ever was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
