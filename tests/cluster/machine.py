"""What a node changes on the machine outside its own folder, and how that is put back."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import progress
from tests.cluster.errors import AlreadyTaken, ClusterError
from tests.cluster.instance import Instance

CGROUP = "llmendpoint-cluster"
CPU_WEIGHTS = {"cpu.shares": 8 * 1024, "cpu.weight": 8 * 100}
"""By the file of each cgroup version: pods weigh as much as eight processes of the machine. On a node of its own, all that is
not a pod weighs less than the pods; here each process of the control plane and of the tests weighs as much as one cgroup."""
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")

SWITCHED_ON = ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet")
"""Packets go from pod to pod, and from this machine's 127.0.0.1 to a pod; network.py drops what comes for 127.0.0.1 from
anywhere else."""

# The kubelet and kube-proxy set the others for the whole machine.
_SYSCTLS = (
    *SWITCHED_ON,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# Places that the components have no setting for. Removed at the end where they were not there before.
_FIXED_PATHS = (
    Path("/var/lib/kubelet"),
    DEVICE_PLUGINS,
    Path("/var/log/containers"),
    Path("/var/lib/cni"),
    Path("/run/containerd"),
    Path("/run/containerd/s"),
    Path("/var/lib/containerd"),
    Path("/opt/containerd"),
    Path("/run/xtables.lock"),
)
_UNIFIED_CONTROL = Path("/sys/fs/cgroup/cgroup.subtree_control")
_KUBELET_CONTROLLERS = {"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}
_SERVICES = {
    "/var/run/docker.sock": "a Docker daemon",
    "/run/containerd/containerd.sock": "a containerd",
    "/run/crio/crio.sock": "CRI-O",
    "/run/k3s/containerd/containerd.sock": "k3s",
    str(DEVICE_PLUGINS / "kubelet.sock"): "a kubelet",
}


def require_free() -> None:
    """Refuse a machine that somebody else's containers run on."""
    if os.geteuid() != 0:
        raise ClusterError("a node needs root; a control plane alone does not (--control-plane)")
    for path, what in _SERVICES.items():
        if _answers(path):
            raise AlreadyTaken(
                f"{what} runs on this machine ({path} answers), and the embedded node will not share it. Use that one's"
                " cluster (DEMO_KUBECONFIG=…), or stop it first"
            )


def settings() -> dict[str, str | None]:
    """The kernel's settings that a node changes, as they are now."""
    return {name: _read_sysctl(name) for name in _SYSCTLS}


def fixed_paths() -> tuple[Path, ...]:
    """Places outside its folder that a node writes to."""
    return _FIXED_PATHS


def remember(instance: Instance) -> None:
    """Write down what the machine was like, before anything is changed."""
    existing = [str(path) for path in _FIXED_PATHS if path.exists()]
    record = {"sysctls": settings(), "existing": existing, "controllers": sorted(_enabled_controllers())}
    (instance.folder / "before.json").write_text(json.dumps(record))


def restore(instance: Instance) -> None:
    """Put settings back and remove what was not there before."""
    try:
        before = json.loads((instance.folder / "before.json").read_text())
    except FileNotFoundError:
        return  # it had not begun to change anything
    for name, value in before["sysctls"].items():
        if value is not None and _read_sysctl(name) != value:
            Path("/proc/sys", name).write_text(value)
    for controller in _enabled_controllers() - set(before["controllers"]):
        _UNIFIED_CONTROL.write_text(f"-{controller}")
    for path in _FIXED_PATHS:
        if str(path) not in before["existing"]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{instance.folder}/"):
            link.unlink()


def make_cgroups() -> None:
    """The cgroup that all pods live below, in every hierarchy.

    On a machine with cgroup v2 alone, the kubelet needs its controllers handed down from the root first; systemd hands
    down only those that its own units use.
    """
    if _UNIFIED_CONTROL.exists():
        available = set(_UNIFIED_CONTROL.with_name("cgroup.controllers").read_text().split())
        for controller in (available & _KUBELET_CONTROLLERS) - _enabled_controllers():
            _UNIFIED_CONTROL.write_text(f"+{controller}")
    for mount in _cgroup_mounts():
        (mount / CGROUP).mkdir(exist_ok=True)
        for name, weight in CPU_WEIGHTS.items():
            if (file := mount / CGROUP / name).exists():
                file.write_text(str(weight))


def end_pods(instance: Instance) -> None:
    """Kill what runs in the pods' cgroup, then the shims that held it."""
    for pid in pids_in_pods():
        _kill(pid)
    for pid in _shims(instance):
        _kill(pid)


def remove_cgroups() -> None:
    """Remove the pods' cgroups, deepest first."""
    for mount in _cgroup_mounts():
        for folder, _, _ in os.walk(mount / CGROUP, topdown=False):
            Path(folder).rmdir()


def unmount_below(folder: Path) -> None:
    """Take off every mount below `folder`, the newest first."""
    for target in reversed(list(_mounts_below(folder))):
        progress.run(["umount", "-l", target])
    left = list(_mounts_below(folder))
    if left:
        raise ClusterError(
            f"still mounted below {folder}: {', '.join(left)}; unmount them, then run `down` again"
        )


def remove_shim_sockets(instance: Instance) -> None:
    """Sockets of shims that were killed; their folder /run/containerd/s is a constant of containerd."""
    for address in instance.folder.glob("containerd/state/io.containerd.runtime.v2.task/*/*/address"):
        Path(address.read_text().removeprefix("unix://")).unlink(missing_ok=True)


def _enabled_controllers() -> set[str]:
    """Controllers that the root of cgroup v2 hands down; none where v1 has them."""
    return set(_UNIFIED_CONTROL.read_text().split()) if _UNIFIED_CONTROL.exists() else set()


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _read_sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except FileNotFoundError:
        return None


def _mount_table() -> Iterator[tuple[str, str]]:
    """(target, file system type) of every mount, oldest first."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, kind, *_ = line.split(" ")
        yield target.replace("\\040", " "), kind


def _mounts_below(folder: Path) -> Iterator[str]:
    return (target for target, _ in _mount_table() if target.startswith(f"{folder}/"))


def _cgroup_mounts() -> list[Path]:
    return [Path(target) for target, kind in _mount_table() if kind in ("cgroup", "cgroup2")]


def cgroups() -> Iterator[str]:
    """Those at the top of every hierarchy, and all below the pods'. What other programs make in theirs comes and goes."""
    for mount in _cgroup_mounts():
        yield from (str(path) for path in mount.iterdir() if path.is_dir())
        yield from (folder for folder, _, _ in os.walk(mount / CGROUP))


def pids_in_pods() -> set[int]:
    pids: set[int] = set()
    for mount in _cgroup_mounts():
        # Not Path.glob: that fails on a folder that goes away under it, as pods' do.
        for folder, _, _ in os.walk(mount / CGROUP):
            try:
                pids.update(int(line) for line in Path(folder, "cgroup.procs").read_text().split())
            except (FileNotFoundError, OSError):
                continue  # gone in the meantime
    return pids


def _shims(instance: Instance) -> set[int]:
    """Processes whose command line names our containerd's socket."""
    found = set()
    wanted = str(instance.containerd_socket).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith(b"containerd-shim-runc-v2") and wanted in words:
            found.add(int(path.parent.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
