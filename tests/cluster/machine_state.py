"""What a node could leave behind on a machine, gathered so that before and after can be compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import progress
from tests.cluster.errors import CommandFailed
from tests.cluster.machine import cgroups, fixed_paths, pids_in_pods, settings

_PROGRAMS = (
    "containerd",
    "containerd-shim",
    "runc",
    "kubelet",
    "kube-",
    "etcd",
    "coredns",
    "pause",
    "fake-accel",
)


@dataclass(frozen=True)
class MachineState:
    """Sets of names, so that pytest's comparison of two states shows what differs."""

    packet_filter: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    processes: frozenset[str]
    settings: frozenset[str]
    paths: frozenset[str]


def observe(folder: Path) -> MachineState:
    """The machine as it is now; of the processes those of the instance in `folder`."""
    return MachineState(
        packet_filter=frozenset(_rules()),
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        routes=frozenset(progress.run(["ip", "route", "show", "table", "all"]).splitlines()),
        mounts=frozenset(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()),
        cgroups=frozenset(cgroups()),
        processes=frozenset(_processes(folder)),
        settings=frozenset(f"{name}={value}" for name, value in settings().items()),
        paths=frozenset(str(path) for path in (*fixed_paths(), folder) if path.exists()),
    )


def _rules() -> Iterator[str]:
    """Rules and chains that are not the kernel's own, of both protocols and all tables, without counters."""
    for program in ("iptables-save", "ip6tables-save"):
        try:
            lines = progress.run([program]).splitlines()
        except CommandFailed:
            continue  # a kernel without it has no rules in it
        for line in lines:
            if line.startswith("-A") or (line.startswith(":") and " - " in line):
                yield f"{program} {line.split(' [')[0]}"


def _processes(instance: Path) -> Iterator[str]:
    """Living processes in the pods' cgroup, and those whose command line names the instance's folder."""
    in_pods = pids_in_pods()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{instance}/" in command or int(folder.name) in in_pods:
            yield f"{folder.name} {command[:200]}"
