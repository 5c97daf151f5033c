"""Our chart on a cluster: the values for locally built images, the shared libraries' volume, install and remove.

The demo and the end-to-end tests install the product through this module, and through Helm as a user would.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster, balancer, cache, runtime
from tests.cluster import images as image_builds
from tests.cluster.errors import CommandFailed

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "llmendpoint"
NAMESPACE = "llmendpoint-system"
RELEASE = "llmendpoint"
CLAIM_PREFIX = "site-packages-"
BALANCER = "demo-gateway"
DEFINITION = "llmendpoints.llmendpoint.io"
Values = dict[str, Any]


@dataclass(frozen=True)
class Images:
    """Image references (`name:tag`). `site_packages` is a folder of the node with what `server` lacks, or None."""

    operator: str
    gateway: str
    server: str
    simulator: str | None = None
    batch: str | None = None
    site_packages: Path | None = None

    def values(self) -> Values:
        """Chart values that name these images."""
        simulator = {"install": True, "image": _image(self.simulator)} if self.simulator else {}
        return {
            "operator": {"image": _image(self.operator)},
            "gateway": {"image": _image(self.gateway)},
            "runtime": {"image": _image(self.server), **self._shared_libraries()},
            "simulator": simulator,
            "models": {"image": _image(self.simulator)} if self.simulator else {},
            # Left out, and not empty: the chart of an earlier release refuses a value that it does not know.
            **({"batch": {"image": _image(self.batch)}} if self.batch else {}),
        }

    @property
    def claim(self) -> str:
        """Name of the libraries' claim; a PersistentVolume cannot change, so other libraries get another one."""
        return f"{CLAIM_PREFIX}{cache.digest_of(str(self.site_packages))[:8]}"

    def volume(self, namespace: str) -> list[Values]:
        """The libraries' volume and claim for endpoints of `namespace`."""
        if self.site_packages is None:
            return []
        return image_builds.local_volume(self.claim, self.site_packages, namespace=namespace)

    def _shared_libraries(self) -> Values:
        if self.site_packages is None:
            return {}
        claim = {"claimName": self.claim, "readOnly": True}
        mount = {"name": "site-packages", "mountPath": image_builds.SITE_PACKAGES_MOUNT, "readOnly": True}
        return {
            "volumes": [{"name": "site-packages", "persistentVolumeClaim": claim}],
            "volumeMounts": [mount],
        }


def _image(reference: str) -> Values:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def load(cluster: Cluster, archives: dict[str, Path], site_packages: Path | None) -> Images:
    """Give our images to an embedded cluster's node, under tags of their content.

    A pod is made anew only when something in its template changes: a tag that stays would leave the old image running.
    """
    names = {}
    for part, archive in archives.items():
        [name] = cluster.import_image(archive)
        names[part] = f"{name.rpartition(':')[0]}:{archive.parent.name[:12]}"
        runtime.ctr(cluster.instance, "images", "tag", "--force", name, names[part])
    return Images(**names, site_packages=site_packages)


def merged(base: Values, extra: Values) -> Values:
    """`base` with `extra` laid over it, map by map."""
    both = {
        key: merged(base[key], extra[key])
        for key in base.keys() & extra.keys()
        if isinstance(extra[key], dict)
    }
    return {**base, **extra, **both}


def install(cluster: Cluster, values: Values, folder: Path, chart: Path = CHART) -> None:
    """`helm upgrade --install` of the chart; does not wait for its pods. `folder` keeps the values for the reader."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    cluster.helm(
        "upgrade", "--install", RELEASE, str(chart), "--namespace", NAMESPACE, "--create-namespace",
        "--values", str(path),
    )  # fmt: skip


def balance(cluster: Cluster, port: int) -> None:
    """Have the gateways answer on 127.0.0.1 at `port`. A node has room for one pod with a host port, and the demo runs two
    gateways; not in the chart, since only here 127.0.0.1 is where a load balancer would be."""
    selector = {"app.kubernetes.io/name": "llmendpoint-gateway", "app.kubernetes.io/component": "gateway"}
    balancer.answer_on_loopback(cluster, BALANCER, NAMESPACE, selector, port=port, target="http")


def balanced_port(cluster: Cluster) -> int | None:
    """The port of an earlier `balance`."""
    try:
        [port] = cluster.get("service", BALANCER, "-n", NAMESPACE)["spec"]["ports"]
    except CommandFailed:
        return None
    return int(port["port"])


def installed_values(cluster: Cluster) -> Values | None:
    """What the release was installed with, None where there is none."""
    try:
        return (
            json.loads(cluster.helm("get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "json"))
            or {}
        )
    except CommandFailed:
        return None


def endpoints(cluster: Cluster) -> list[str]:
    """All endpoints as `namespace/name`; none where the definition is not installed."""
    if DEFINITION not in cluster.kubectl("get", "crd", "-o", "name"):
        return []
    found = json.loads(cluster.kubectl("get", DEFINITION, "--all-namespaces", "-o", "json"))["items"]
    return sorted(f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in found)


def identity(cluster: Cluster) -> str:
    """Tells a cluster from a later one with the same kubeconfig."""
    return cluster.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}").strip()
