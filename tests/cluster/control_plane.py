"""etcd, API server, controller manager and scheduler: a real API without a node, in seconds."""

import json
import os

import yaml

from tests.cluster import configuration, manifests
from tests.cluster.api import client_context, describe, is_healthy, unverified_context
from tests.cluster.binaries import Binaries
from tests.cluster.certificates import component_identities, write_pki
from tests.cluster.errors import CommandFailed
from tests.cluster.instance import LOOPBACK, NODE_NAME, Instance

_START_LIMIT_S = 120.0
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_KUBECONFIGS = ("admin", "controller-manager", "scheduler", "kube-proxy", "coredns", "kubelet")


def write_files(instance: Instance, binaries: Binaries) -> None:
    """Certificates, kubeconfigs and links to the programs."""
    instance.folder.mkdir(parents=True, exist_ok=True)
    instance.folder.chmod(0o711)
    binaries.link_into(instance.bin)
    addresses = (LOOPBACK, configuration.API_SERVICE_ADDRESS, configuration.NODE_ADDRESS)
    write_pki(instance.pki, component_identities(NODE_NAME, addresses))
    instance.config.mkdir(exist_ok=True)
    (instance.config / "audit.yaml").write_text(yaml.safe_dump(configuration.audit_policy()))
    for identity in _KUBECONFIGS:
        document = configuration.kubeconfig(instance, identity)
        instance.kubeconfig(identity).write_text(yaml.safe_dump(document))


def start(instance: Instance) -> None:
    """Start the four processes and wait until the API can be worked with."""
    processes = instance.processes
    admin = client_context(instance.pki)
    start_component(instance, "etcd")
    start_component(instance, "kube-apiserver")
    processes.wait_until(
        "the API server is ready",
        lambda: is_healthy(instance.address, instance.ports.api, "/readyz", admin),
        ("kube-apiserver", "etcd"),
        _START_LIMIT_S,
    )
    # Not before: they end at once where the API server has not yet made the roles that they read by.
    start_component(instance, "kube-controller-manager")
    start_component(instance, "kube-scheduler")
    describe(instance).apply(*manifests.component_roles())
    anyone = unverified_context()
    ports = {
        "kube-controller-manager": instance.ports.controller_manager,
        "kube-scheduler": instance.ports.scheduler,
    }
    for name, port in ports.items():
        processes.wait_until(
            f"{name} is healthy",
            lambda port=port: is_healthy(LOOPBACK, port, "/healthz", anyone),  # type: ignore[misc]
            (name,),
            _START_LIMIT_S,
        )
    processes.wait_until(
        "the default service account exists",
        lambda: _has_default_service_account(instance),
        ("kube-controller-manager", "kube-apiserver"),
        _START_LIMIT_S,
    )


def start_component(instance: Instance, name: str) -> None:
    """Start one of `COMPONENTS`; it is not waited for."""
    commands = {
        "etcd": configuration.etcd,
        "kube-apiserver": configuration.kube_apiserver,
        "kube-controller-manager": configuration.kube_controller_manager,
        "kube-scheduler": configuration.kube_scheduler,
    }
    stores = name in ("etcd", "kube-apiserver")
    environment = {**os.environ, **configuration.STORAGE_ENVIRONMENT} if stores else None
    instance.processes.start(name, commands[name](instance), environment)


def _has_default_service_account(instance: Instance) -> bool:
    """Pods of a namespace are refused before its service account is there."""
    try:
        answer = describe(instance).kubectl("get", "serviceaccount", "default", "-o", "json")
    except CommandFailed:
        return False
    return bool(json.loads(answer)["metadata"]["name"] == "default")


def stop(instance: Instance) -> None:
    """End the four processes, those that write before those that store."""
    instance.processes.stop("kube-controller-manager", "kube-scheduler")
    instance.processes.stop("kube-apiserver", grace_s=5)
    instance.processes.stop("etcd")
