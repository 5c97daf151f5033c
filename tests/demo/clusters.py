"""Which cluster the demo runs on: the embedded one, or the one of DEMO_KUBECONFIG."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import Cluster, connect
from tests.cluster import instance as instances
from tests.cluster.binaries import build_all
from tests.cluster.errors import ClusterError, CommandFailed
from tests.demo.product import Images

NAME = "demo"
TOOLS = ("kubectl", "helm")
_VARIABLES = {
    "demo": ("DEMO_KUBECONFIG", "DEMO_IMAGES", "DEMO_IMAGES_TAG"),
    "demo-down": ("DEMO_KUBECONFIG",),
}


def typed(target: str) -> str:
    """`make demo` or `make demo-down` as the user types it again: with the variables of this run."""
    found = {name: os.environ.get(name) for name in _VARIABLES[target]}
    return (
        "".join(f"{name}={shlex.quote(value)} " for name, value in found.items() if value) + f"make {target}"
    )


def foreign_kubeconfig() -> Path | None:
    """The kubeconfig that the user named, None for the embedded cluster."""
    named = os.environ.get("DEMO_KUBECONFIG")
    if not named:
        return None
    path = Path(named).expanduser().resolve()
    if not path.is_file():
        raise ClusterError(f"DEMO_KUBECONFIG={named} is not a file; give the path of a kubeconfig")
    return path


def embedded_of(kubeconfig: Path) -> Cluster | None:
    """The embedded cluster that this kubeconfig belongs to, if it is one of ours."""
    for instance in instances.load_all():
        if instance.kubeconfig().resolve() == kubeconfig:
            return connect(instance.name)
    return None


def is_the_demos(cluster: Cluster) -> bool:
    """True for the cluster that `make demo` starts. On any other, what was there before stays."""
    return cluster.instance is not None and cluster.name == NAME


def foreign_cluster(kubeconfig: Path, folder: Path) -> Cluster:
    """A handle on somebody's cluster, with the kubectl and helm of PATH, or ours where there are none."""
    tools = folder / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    found = {name: shutil.which(name) for name in TOOLS}
    if not all(found.values()):
        built = build_all()
        found = {"kubectl": str(built.kube), "helm": str(built.helm)}
    for name, target in found.items():
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(str(target))
    cluster = Cluster(
        name=str(kubeconfig),
        kubeconfig=kubeconfig,
        api_url="",
        port=0,
        bin=tools,
        has_node=False,
        instance=None,
    )
    try:
        cluster.kubectl("get", "--raw", "/readyz")
    except CommandFailed as error:
        raise ClusterError(
            f"the cluster of DEMO_KUBECONFIG={kubeconfig} does not answer: {error.output}"
        ) from error
    return cluster


def published_images() -> Images:
    """Images that a foreign cluster can pull: DEMO_IMAGES is their common prefix, DEMO_IMAGES_TAG their tag."""
    prefix, tag = os.environ.get("DEMO_IMAGES"), os.environ.get("DEMO_IMAGES_TAG", "0.1.0")
    if not prefix:
        raise ClusterError(
            "a cluster of your own pulls the images from a registry that it can reach. Build them from"
            " Dockerfile.operator, Dockerfile.gateway and Dockerfile.server, push them as"
            " PREFIX/llmendpoint-operator:TAG, …-gateway:TAG and …-server:TAG, and set DEMO_IMAGES=PREFIX and"
            " DEMO_IMAGES_TAG=TAG (with kind: `kind load docker-image` in place of the push)"
        )
    return Images(*(f"{prefix}/llmendpoint-{part}:{tag}" for part in ("operator", "gateway", "server")))


@contextmanager
def port_forward(cluster: Cluster, service: str, namespace: str, port: int) -> Iterator[str]:
    """A tunnel to a Service for as long as the block runs; gives its address on 127.0.0.1."""
    argv = [cluster.bin / "kubectl", "-n", namespace, "port-forward", f"service/{service}", f":{port}"]
    tunnel = subprocess.Popen(argv, env=cluster.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert tunnel.stdout is not None
        line = tunnel.stdout.readline()  # Forwarding from 127.0.0.1:43210 -> 8080
        if "->" not in line:
            raise ClusterError(
                f"kubectl port-forward to {service} did not start: {line.strip() or 'no output'}"
            )
        yield f"http://{line.split()[2]}"
    finally:
        tunnel.terminate()
        tunnel.wait(10)
