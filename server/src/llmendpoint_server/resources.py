"""What the machine allows this process: open files and processors."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

import structlog

WANTED_OPEN_FILES = 65_535
CGROUP = Path("/sys/fs/cgroup")


def raise_open_files() -> int:
    """Raise RLIMIT_NOFILE to its hard limit; warns if that is too low for thousands of streams."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < WANTED_OPEN_FILES:
        structlog.get_logger().warning(
            f"The hard limit on open files is {hard}: each stream takes one. Raise it to at least {WANTED_OPEN_FILES}.",
            limit=hard,
        )
    return hard


def cpu_quota(root: Path = CGROUP) -> float | None:
    """Processors that the cgroup grants, or None without a limit (cgroup v2, then v1)."""
    for quota_file, period_file in (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = (root / quota_file).read_text().split()
            if period_file is not None:
                words += (root / period_file).read_text().split()
        except OSError:
            continue
        if len(words) == 2 and words[0] not in ("max", "-1"):
            return int(words[0]) / int(words[1])
    return None


def usable_threads(root: Path = CGROUP) -> int:
    """Threads worth starting. If there are more than the quota, the kernel stops them all for the rest of each period."""
    available = len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    return available if quota is None else max(1, min(available, math.ceil(quota)))
