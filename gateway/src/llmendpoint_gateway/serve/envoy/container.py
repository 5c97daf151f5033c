"""The limits that control groups, of version 1 or 2, set for this container."""

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 60  # version 1 says "none" with a number near 2**63


def memory_limit(cgroups: Path = CGROUPS) -> int | None:
    """Bytes; None without a limit."""
    text = _read(cgroups / "memory.max") or _read(cgroups / "memory" / "memory.limit_in_bytes")
    limit = int(text) if text and text.isdigit() else NO_LIMIT
    return limit if limit < NO_LIMIT else None


def cpu_limit(cgroups: Path = CGROUPS) -> float | None:
    """CPUs; None without a limit."""
    if both := _read(cgroups / "cpu.max"):
        quota, _, period = both.partition(" ")
    else:
        quota = _read(cgroups / "cpu" / "cpu.cfs_quota_us")
        period = _read(cgroups / "cpu" / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit():
        return None  # "max", "-1", or nothing to read
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
