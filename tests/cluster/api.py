"""A running cluster, as tests and the demo use it.

cluster = start_control_plane("mine")
cluster.kubectl("get", "pods", "-A")
cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
cluster.stop()
"""

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import progress
from tests.cluster.errors import ClusterError, CommandFailed
from tests.cluster.instance import Instance
from tests.cluster.reading import Reader, understand


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up. `bin` holds kubectl and helm; `kubeconfig` is the administrator's.

    `instance` is what the test bed knows about a cluster of its own, None for somebody else's.
    """

    name: str
    kubeconfig: Path
    api_url: str
    port: int
    bin: Path
    has_node: bool
    instance: Instance | None = None

    @property
    def own(self) -> Instance:
        """The test bed's record of this cluster; ClusterError for somebody else's."""
        if self.instance is None:
            raise ClusterError(
                f"the cluster {self.name!r} is not the test bed's: its processes are not ours to touch"
            )
        return self.instance

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find this cluster and its tools."""
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Standard output of a kubectl command; CommandFailed carries what it said otherwise."""
        argv = [str(self.bin / "kubectl"), *args]
        return progress.run(argv, env=self.environment, stdin=stdin, timeout=timeout)

    def helm(self, *args: str, timeout: float = 120) -> str:
        """Standard output of a helm command."""
        return progress.run([str(self.bin / "helm"), *args], env=self.environment, timeout=timeout)

    @cached_property
    def _reader(self) -> Reader:
        own = self.own
        return Reader(own.address, own.ports.api, client_context(own.pki))

    def get(self, *args: str) -> Any:
        """`kubectl get … -o json`, parsed; without kubectl where the cluster is ours and the arguments are simple."""
        question = understand(args) if self.instance else None
        if question is not None:
            return self._reader.get(question)
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def apply(self, *manifests: dict[str, Any], namespace: str | None = None) -> None:
        """Server-side apply of manifests."""
        scope = ["-n", namespace] if namespace else []
        text = yaml.safe_dump_all(manifests)
        self.kubectl("apply", "--server-side", "--force-conflicts", *scope, "-f", "-", stdin=text)

    def logs(self, pod: str, namespace: str = "default", *args: str) -> str:
        """What a pod's container has printed."""
        return self.kubectl("logs", "-n", namespace, pod, *args)

    def execute(self, pod: str, *command: str, namespace: str = "default") -> str:
        """Standard output of a command in a running pod."""
        return self.kubectl("exec", "-n", namespace, pod, "--", *command)

    def wait_for(self, what: str, condition: Callable[[], Any], limit_s: float = 60) -> Any:
        """The first true value of `condition`; what it last said is in the error otherwise."""
        return wait_for(what, condition, limit_s)

    def wait_ready(self, pod: str, namespace: str = "default", limit_s: float = 60) -> None:
        """Wait for a pod to be Ready; the error shows the pod's events."""
        try:
            argv = [
                "wait",
                "--for=condition=Ready",
                f"pod/{pod}",
                "-n",
                namespace,
                f"--timeout={limit_s:.0f}s",
            ]
            self.kubectl(*argv, timeout=limit_s + 10)
        except CommandFailed as error:
            with contextlib.suppress(CommandFailed):
                description = self.kubectl("describe", f"pod/{pod}", "-n", namespace)
                raise ClusterError(f"pod {pod} is not Ready after {limit_s:.0f} s\n{description}") from error
            raise

    def import_image(self, archive: Path) -> list[str]:
        """Give the node an image from an OCI or Docker archive; returns its names. Needs a node."""
        from tests.cluster import runtime

        return runtime.import_image(self.own, archive)

    def stop(self) -> None:
        """Remove the cluster and what it made on the machine."""
        from tests.cluster import lifecycle

        lifecycle.down(self.own)


def describe(instance: Instance) -> Cluster:
    """The handle of a running instance."""
    return Cluster(
        name=instance.name,
        kubeconfig=instance.kubeconfig(),
        api_url=instance.api_url,
        port=instance.ports.api,
        bin=instance.bin,
        has_node=instance.has_node,
        instance=instance,
    )


def wait_for(what: str, condition: Callable[[], Any], limit_s: float = 60, every_s: float = 0.1) -> Any:
    """Poll until `condition` gives a true value. A failing kubectl or assertion counts as not yet."""
    deadline = time.monotonic() + limit_s
    last: object = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except (CommandFailed, AssertionError) as error:
            last = error
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not happen within {limit_s:.0f} s; last: {last}")
        time.sleep(every_s)


def is_healthy(address: str, port: int, path: str, context: ssl.SSLContext | None) -> bool:
    """True when a GET answers 200; plain HTTP without a context."""
    connection = (
        http.client.HTTPSConnection(address, port, timeout=2, context=context)
        if context
        else http.client.HTTPConnection(address, port, timeout=2)
    )
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def client_context(pki: Path, identity: str = "admin") -> ssl.SSLContext:
    """TLS that trusts the cluster's authority and shows `identity`'s certificate."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / f"{identity}.crt"), str(pki / f"{identity}.key"))
    return context


def unverified_context() -> ssl.SSLContext:
    """For health checks of components that sign their own certificate, on 127.0.0.1."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


__all__: Sequence[str] = ("Cluster", "describe", "wait_for")
