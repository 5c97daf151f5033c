"""KEDA itself, as processes beside the control plane: its operator and its metrics adapter, built from its Go module.

Both act under KEDA's own role. Its definitions and roles are those of its module, its side of the scaler's certificates
and the names of everything are those of our chart.
"""

from __future__ import annotations

import contextlib
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster, wait_for
from tests.cluster.api import is_healthy
from tests.cluster.binaries import Keda
from tests.cluster.certificates import Identity, write_pki
from tests.cluster.errors import CommandFailed, NotStarted
from tests.demo.product import CHART
from tests.ports import free_port

NAMESPACE = "keda"
RELEASE = "llm-keda"
"""Where the chart would be installed."""
API = "v1beta1.external.metrics.k8s.io"
Json = dict[str, Any]


@dataclass(frozen=True)
class Contract:
    """What the chart with `keda.enabled` says: KEDA's objects, and the operator's flags with the folder of its
    certificates."""

    objects: tuple[Json, ...]
    address: str
    authentication: str
    tls: Path


def read_contract(cluster: Cluster, folder: Path) -> Contract:
    """From the chart as it is rendered with nothing but keda.enabled."""
    text = cluster.helm("template", "operator", str(CHART), "-n", RELEASE, "--set", "keda.enabled=true")
    objects = [found for found in yaml.safe_load_all(text) if found]
    theirs = [found for found in objects if found["metadata"].get("namespace") == NAMESPACE]
    theirs += [found for found in objects if found["kind"] == "ClusterTriggerAuthentication"]
    [ours] = [o for o in objects if o["kind"] == "Secret" and o["metadata"]["namespace"] == RELEASE]
    folder.mkdir()
    for name, data in ours["data"].items():
        (folder / name).write_bytes(b64decode(data))
    [operator] = [
        o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "llmendpoint-operator"
    ]
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    flags = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    return Contract(tuple(theirs), flags["--keda-address"], flags["--keda-authentication"], folder)


@dataclass
class RealKeda:
    """KEDA while it runs; `tunnel` is its way to the scaler."""

    cluster: Cluster
    folder: Path
    programs: Keda
    _started: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def tail(self, characters: int = 4000) -> str:
        """The end of what both have said."""
        return "\n".join(
            f"--- {name}\n{(self.folder / f'{name}.log').read_text(errors='replace')[-characters:]}"
            for name, _ in self._started
        )

    def launch(self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """One of its programs, as nobody but KEDA's own service account."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in argv], stdout=log, stderr=log, env={**environment}, cwd=self.folder
            )
        self._started.append((name, process))

    def wait(self, what: str, ready: Callable[[], Any]) -> None:
        """Raises NotStarted with its words when it ends first, or takes too long."""

        def found() -> Any:
            for name, process in self._started:
                if process.poll() is not None:
                    raise NotStarted(f"{name} ended with {process.returncode} before {what}\n{self.tail()}")
            return ready()

        wait_for(what, found, 90)

    def stop(self) -> None:
        """Those that ask before those that answer."""
        for _, process in reversed(self._started):
            process.terminate()
        for _, process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait(10)


def install(cluster: Cluster, config: Path) -> None:
    """KEDA's definitions, its service account and its roles."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "namespace", RELEASE)
    definitions = sorted((config / "crd/bases").glob("*.yaml"))
    roles = ("rbac/role.yaml", "rbac/role_binding.yaml", "service_account/service_account.yaml")
    metrics = ("metrics-server/role.yaml", "metrics-server/role_binding.yaml")
    for path in (*definitions, *(config / name for name in (*roles, *metrics))):
        cluster.apply(*filter(None, yaml.safe_load_all(path.read_text())))
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in definitions]
    cluster.kubectl("wait", "--for=condition=Established", "crd", *names)


def let_go(cluster: Cluster) -> None:
    """While KEDA still runs: its objects have finalizers that only KEDA takes away."""
    with contextlib.suppress(CommandFailed):
        cluster.kubectl("delete", "scaledobjects", "--all", "-A", "--timeout=30s")


def uninstall(cluster: Cluster, config: Path) -> None:
    """So that other tests find a cluster without KEDA."""
    cluster.kubectl("delete", "apiservice", API, "--ignore-not-found")
    for path in sorted((config / "crd/bases").glob("*.yaml")):
        cluster.kubectl("delete", "-f", str(path), "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "namespace", NAMESPACE, RELEASE, "--wait=false")


@contextlib.contextmanager
def running(cluster: Cluster, programs: Keda, folder: Path, proxy_port: int) -> Iterator[RealKeda]:
    """Installed, started and known to the API server while the block runs."""
    found = RealKeda(cluster, folder, programs)
    install(cluster, programs.config)
    try:
        ports = {name: free_port() for name in ("health", "metrics", "service", "api", "other")}
        _certify(folder)
        environment = {
            "KUBECONFIG": str(_kubeconfig(cluster, folder)),
            "POD_NAMESPACE": NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
            "WATCH_NAMESPACE": "",
            "HOME": str(folder),
        }
        _start_operator(found, ports, environment | {"HTTPS_PROXY": f"http://127.0.0.1:{proxy_port}"})
        _start_adapter(found, ports, environment)
        yield found
    finally:
        let_go(cluster)
        found.stop()
        uninstall(cluster, programs.config)


def _certify(folder: Path) -> None:
    """Of the way between KEDA's two programs, and of the API server to the adapter."""
    served = ("localhost", f"keda-metrics-apiserver.{NAMESPACE}.svc")
    write_pki(folder / "pki", [Identity("operator", "keda-operator", names=served), Identity("adapter", "keda-adapter"), Identity("api", "keda-api", names=served)])  # fmt: skip
    for name in ("operator", "adapter"):
        (folder / name).mkdir()
        for target, source in (("ca.crt", "ca.crt"), ("tls.crt", f"{name}.crt"), ("tls.key", f"{name}.key")):
            (folder / name / target).write_bytes((folder / "pki" / source).read_bytes())


def _kubeconfig(cluster: Cluster, folder: Path) -> Path:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "keda-operator", "-n", NAMESPACE).strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = folder / "keda.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _start_operator(keda: RealKeda, ports: Mapping[str, int], environment: Mapping[str, str]) -> None:
    argv = [
        keda.programs.operator,
        f"--health-probe-bind-address=127.0.0.1:{ports['health']}",
        f"--metrics-bind-address=127.0.0.1:{ports['metrics']}",
        f"--metrics-service-bind-address=127.0.0.1:{ports['service']}",
        f"--cert-dir={keda.folder / 'operator'}",
    ]
    keda.launch("keda-operator", argv, environment)
    keda.wait("KEDA's operator is ready", lambda: is_healthy("127.0.0.1", ports["health"], "/readyz", None))


def _start_adapter(keda: RealKeda, ports: Mapping[str, int], environment: Mapping[str, str]) -> None:
    kubeconfig = environment["KUBECONFIG"]
    argv = [
        keda.programs.adapter,
        "--bind-address=127.0.0.1",
        f"--secure-port={ports['api']}",
        f"--port={ports['other']}",
        f"--metrics-service-address=localhost:{ports['service']}",
        f"--cert-dir={keda.folder / 'adapter'}",
        f"--tls-cert-file={keda.folder / 'pki/api.crt'}",
        f"--tls-private-key-file={keda.folder / 'pki/api.key'}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--lister-kubeconfig={kubeconfig}",
    ]
    keda.launch("keda-adapter", argv, environment)
    keda.cluster.apply(*_api_service(ports["api"], (keda.folder / "pki/ca.crt").read_bytes()))

    def available() -> bool:
        conditions = keda.cluster.get("apiservice", API).get("status", {}).get("conditions", ())
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    keda.wait("KEDA's metrics API is available", available)


def _api_service(port: int, authority: bytes) -> list[Json]:
    """KEDA's own, but for an external name in place of pods: there is no network of Services here."""
    service = {"namespace": NAMESPACE, "name": "keda-metrics-apiserver"}
    version, group = API.split(".", 1)
    return [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": service,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "caBundle": b64encode(authority).decode(), "service": {**service, "port": port},
            },
        },
    ]  # fmt: skip
