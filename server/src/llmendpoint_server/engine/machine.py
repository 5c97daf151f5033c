"""What this machine, or the container's share of it, has: memory, bf16 instructions, and how its threads wait."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

SPIN_COUNT = "10000"
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last is ARM's
_CGROUP = Path("/sys/fs/cgroup")


def spin_briefly() -> None:
    """Make OpenMP's threads wait for each other by spinning for microseconds, then sleeping. Must be called before
    torch is imported.

    By default they spin for milliseconds. Beside a busy neighbour each of a step's hundred parallel regions then waits
    for a time slice: the linear layers of the 110M benchmark model take 183 ms at one row, with this setting 63 ms, and
    on an idle machine 16 against 19 ms.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


@lru_cache
def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the processor has beyond its architecture, by the names in /proc/cpuinfo."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(value.split())
    return frozenset()


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has bf16 instructions. Without them, bf16 matmuls of more than one row are emulated: on 2
    AVX2 cores a step of the 110M benchmark model takes 67 ms at 8 rows and 134 at 16, in fp32 44 and 51."""
    return not BF16_FLAGS.isdisjoint(cpu_flags(cpuinfo))


def available_memory(proc: Path = Path("/proc"), cgroup: Path = _CGROUP) -> int:
    """Bytes that this process may still allocate: the machine's, or what is left under its cgroup's limit."""
    free = _machine_memory(proc / "meminfo")
    own = _own_cgroups(proc / "self" / "cgroup")
    # In a container the process's own cgroup is mounted at the root; elsewhere it is found by its path.
    for folder in (
        cgroup / own.get("", "."),
        cgroup,
        cgroup / "memory" / own.get("memory", "."),
        cgroup / "memory",
    ):
        for limit_file, usage_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = _number(folder / limit_file), _number(folder / usage_file)
            if limit is not None and usage is not None:
                free = min(free, limit - usage + _reclaimable(folder / "memory.stat"))
    return max(free, 0)


def _machine_memory(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{meminfo} has no line MemAvailable.")


def _own_cgroups(path: Path) -> dict[str, str]:
    """Controller -> path relative to its mount; the empty controller is cgroup v2's."""
    found = {}
    for line in path.read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = own.lstrip("/") or "."
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such controller, or "max"
        return None


def _reclaimable(path: Path) -> int:
    """Bytes of page cache, which the kernel drops before it kills a process."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(" ", 1) for line in lines)
    return int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))
