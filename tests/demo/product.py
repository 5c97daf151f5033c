"""Our chart on a cluster: the values for locally built images, the shared libraries' volume, install and remove.

The demo and the end-to-end tests install the product through this module, and through Helm as a user would.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster, cache
from tests.cluster.errors import CommandFailed

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "llmendpoint"
NAMESPACE = "llmendpoint-system"
RELEASE = "llmendpoint"
SITE_PACKAGES = "/opt/site-packages"  # where Dockerfile.server's target `no-torch` looks for its dependencies
VOLUME_LABEL = "app.kubernetes.io/part-of=llmendpoint-shared-libraries"
Values = dict[str, Any]


@dataclass(frozen=True)
class Images:
    """Image references (`name:tag`). `site_packages` is a folder of the node with what `server` lacks, or None."""

    operator: str
    gateway: str
    server: str
    site_packages: Path | None = None

    def values(self) -> Values:
        """Chart values that name these images."""
        return {
            "operator": {"image": _image(self.operator)},
            "gateway": {"image": _image(self.gateway)},
            "runtime": {"image": _image(self.server), **self._shared_libraries()},
        }

    @property
    def claim(self) -> str:
        """Name of the volume and the claim; a PersistentVolume cannot change, so other libraries get another one."""
        return f"site-packages-{cache.digest_of(str(self.site_packages))[:8]}"

    def _shared_libraries(self) -> Values:
        if self.site_packages is None:
            return {}
        claim = {"claimName": self.claim, "readOnly": True}
        return {
            "volumes": [{"name": "site-packages", "persistentVolumeClaim": claim}],
            "volumeMounts": [{"name": "site-packages", "mountPath": SITE_PACKAGES, "readOnly": True}],
        }

    def volume(self, namespace: str) -> list[Values]:
        """A `local` volume of the shared libraries and its claim; a volume binds one claim, so one per namespace."""
        if self.site_packages is None:
            return []
        name = f"{namespace}-{self.claim}"
        size = {"storage": "1Gi"}
        labels = dict([VOLUME_LABEL.split("=")])
        common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
        anywhere = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
        return [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    **common,
                    "capacity": size,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": str(self.site_packages)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [anywhere]}},
                    "claimRef": {"namespace": namespace, "name": self.claim},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self.claim, "namespace": namespace, "labels": labels},
                "spec": {**common, "volumeName": name, "resources": {"requests": size}},
            },
        ]


def _image(reference: str) -> Values:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def merged(base: Values, extra: Values) -> Values:
    """`base` with `extra` laid over it, map by map."""
    both = {
        key: merged(base[key], extra[key])
        for key in base.keys() & extra.keys()
        if isinstance(extra[key], dict)
    }
    return {**base, **extra, **both}


def install(cluster: Cluster, values: Values, folder: Path) -> None:
    """`helm upgrade --install` of the chart; does not wait for its pods. `folder` keeps the values for the reader."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    cluster.helm(
        "upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace",
        "--values", str(path),
    )  # fmt: skip


def installed_values(cluster: Cluster) -> Values | None:
    """What the release was installed with, None where there is none."""
    try:
        return (
            json.loads(cluster.helm("get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "json"))
            or {}
        )
    except CommandFailed:
        return None
