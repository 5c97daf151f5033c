"""The whole node: a control plane, containerd, kubelet, kube-proxy, CoreDNS and fake accelerators."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import (
    control_plane,
    machine,
    manifests,
    network,
    node_configuration,
    oci,
    packages,
    progress,
    runtime,
    together,
)
from tests.cluster.api import client_context, describe, is_healthy
from tests.cluster.binaries import Binaries, build_all
from tests.cluster.errors import CommandFailed
from tests.cluster.instance import LOOPBACK, NODE_NAME, Instance

COMPONENTS = ("containerd", "kubelet", "kube-proxy", "fake-accelerators", "coredns")
ACCELERATOR = "nvidia.com/gpu"
_LIMIT_S = 120.0
_RUNTIME_PROGRAMS = ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc")


@dataclass(frozen=True)
class Pieces:
    """What a node is started from: our programs, and the folder that the container runtime was unpacked into."""

    binaries: Binaries
    runtime: Path


def announcement() -> str:
    """What a node installs and changes, for the person whose machine it is."""
    wanted = packages.missing(packages.NODE_PACKAGES)
    installed = (
        f"installs the Debian packages {', '.join(wanted)}" if wanted else "installs no Debian package"
    )
    return (
        f"Starting the node {installed}; builds Kubernetes and unpacks containerd into the cache; makes the network link"
        f" {network.LINK}, iptables chains (KUBE-*, CNI-*, LLMENDPOINT-*), the cgroup {machine.CGROUP},"
        f" {machine.DEVICE_PLUGINS}; sets net.ipv4.ip_forward and route_localnet. `down` takes all of it back, except packages and cache."
    )


def prepare() -> Pieces:
    """Build and unpack what is needed; the compiler and the package manager work side by side."""

    def runtime_of_debian() -> Path:
        packages.install(packages.NODE_PACKAGES)
        return packages.unpacked_runtime()

    binaries, unpacked = together.run_together(build_all, runtime_of_debian)
    return Pieces(binaries, unpacked)


def start(instance: Instance, pieces: Pieces) -> None:
    """Start everything and wait until pods can run, names resolve and accelerators are offered."""
    control_plane.write_files(instance, pieces.binaries)
    _write_files(instance, pieces)
    machine.remember(instance)
    for setting in machine.SWITCHED_ON:
        Path("/proc/sys", setting).write_text("1")
    network.set_up()
    machine.make_cgroups()
    processes, environment = instance.processes, _environment(instance)
    processes.start(
        "containerd", [instance.bin / "containerd", "--config", _containerd_file(instance)], environment
    )
    control_plane.start(instance)
    _import_pause(instance, pieces.binaries.pause)
    describe(instance).apply(*manifests.dns_service(instance))
    start_kubelet(instance)
    proxy = [str(instance.bin / "kube-proxy"), f"--config={instance.config / 'kube-proxy.yaml'}"]
    processes.start("kube-proxy", proxy, environment)
    processes.start("coredns", [instance.bin / "coredns", "-conf", instance.config / "Corefile"])
    machine.DEVICE_PLUGINS.mkdir(parents=True, exist_ok=True)
    plugin = [str(instance.bin / "fake-accelerators"), ACCELERATOR, str(instance.gpus)]
    processes.start("fake-accelerators", plugin)
    _wait_until_ready(instance)


def start_kubelet(instance: Instance) -> None:
    """It is not waited for."""
    instance.processes.start("kubelet", node_configuration.kubelet(instance), _environment(instance))


def stop(instance: Instance) -> None:
    """End the node's processes, then every pod. The kubelet goes first, or it would start pods again."""
    instance.processes.stop("kubelet", "kube-proxy", "coredns", "fake-accelerators", grace_s=5)
    machine.end_pods(instance)
    instance.processes.stop("containerd", grace_s=5)
    machine.end_pods(instance)


def clean_up(instance: Instance) -> None:
    """Take back what the node made outside its folder, and every mount inside it."""
    machine.remove_shim_sockets(instance)
    machine.unmount_below(instance.folder)
    network.tear_down()
    machine.remove_cgroups()
    machine.restore(instance)


def _environment(instance: Instance) -> dict[str, str]:
    """Daemons find their helpers (runc, iptables, mount) whatever PATH the caller has."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": f"{instance.bin}:{system}", "HOME": os.environ.get("HOME", "/root")}


def _containerd_file(instance: Instance) -> Path:
    return instance.config / "containerd.toml"


def _write_files(instance: Instance, pieces: Pieces) -> None:
    for program in _RUNTIME_PROGRAMS:
        link = instance.bin / Path(program).name
        link.unlink(missing_ok=True)
        link.symlink_to(pieces.runtime / program)
    config = instance.config
    (config / "cni").mkdir(exist_ok=True)
    (config / "cni" / "10-llmendpoint.conflist").write_text(json.dumps(node_configuration.cni(instance)))
    _containerd_file(instance).write_text(
        node_configuration.containerd(instance, pieces.runtime / "usr/lib/cni")
    )
    kubelet = node_configuration.kubelet_configuration(instance, f"/{machine.CGROUP}")
    (config / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
    (config / "kube-proxy.yaml").write_text(
        yaml.safe_dump(node_configuration.kube_proxy_configuration(instance))
    )
    (config / "Corefile").write_text(node_configuration.corefile(instance))
    (config / "resolv.conf").write_text("")


def _import_pause(instance: Instance, program: Path) -> None:
    instance.processes.wait_until(
        "containerd answers", lambda: _containerd_answers(instance), ("containerd",), 30
    )
    archive = instance.folder / "pause.tar"
    layer = oci.tar_of({"pause": program.read_bytes()}, mode=0o755)
    oci.write_image(
        archive,
        "localhost/pause:dev",
        layer,
        machine=platform.machine(),
        entrypoint=["/pause"],
        user="65535:65535",
    )
    runtime.import_image(instance, archive)


def _containerd_answers(instance: Instance) -> bool:
    try:
        runtime.ctr(instance, "version", timeout=5)
    except CommandFailed:
        return False
    return True


def _wait_until_ready(instance: Instance) -> None:
    checks = {
        "the node is Ready": (lambda: _node_is_ready(instance), ("kubelet", "containerd")),
        "the accelerators are offered": (
            lambda: _accelerators_are_offered(instance),
            ("fake-accelerators", "kubelet"),
        ),
        "DNS is ready": (
            lambda: is_healthy(LOOPBACK, instance.ports.dns_ready, "/ready", None),
            ("coredns",),
        ),
        "kube-proxy is healthy": (
            lambda: is_healthy(LOOPBACK, instance.ports.proxy_health, "/healthz", None),
            ("kube-proxy",),
        ),
    }
    for what, (ready, watched) in checks.items():
        instance.processes.wait_until(what, ready, watched, _LIMIT_S)
    progress.say(f"node {NODE_NAME} is Ready with {instance.gpus} x {ACCELERATOR}")


def _node_is_ready(instance: Instance) -> bool:
    admin = client_context(instance.pki)
    path = f"/api/v1/nodes/{NODE_NAME}"
    if not is_healthy(instance.address, instance.ports.api, path, admin):
        return False
    conditions = _node(instance)["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _accelerators_are_offered(instance: Instance) -> bool:
    allocatable = _node(instance)["status"].get("allocatable", {})
    return bool(allocatable.get(ACCELERATOR, "0") == str(instance.gpus))


def _node(instance: Instance) -> Any:
    return describe(instance).get("node", NODE_NAME)
