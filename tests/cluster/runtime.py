"""The node's containerd, spoken to through `ctr`."""

from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.errors import ClusterError
from tests.cluster.instance import Instance


def ctr(instance: Instance, *args: str, timeout: float = 300) -> str:
    """Standard output of a ctr command in the kubelet's namespace."""
    argv = [
        str(instance.bin / "ctr"),
        "--address",
        str(instance.containerd_socket),
        "--namespace",
        "k8s.io",
        *args,
    ]
    return progress.run(argv, timeout=timeout)


def import_image(instance: Instance, archive: Path) -> list[str]:
    """Import an archive unless its very bytes were imported before; returns the names of its images."""
    if not instance.has_node:
        raise ClusterError(f"the cluster {instance.name!r} has no node, so it can hold no images")
    receipt = instance.folder / "images" / cache.file_digest(archive)
    if receipt.exists():
        return receipt.read_text().split()
    output = ctr(instance, "images", "import", str(archive))
    names = [line.split()[1] for line in output.splitlines() if line.startswith("unpacking ")]
    if not names:
        raise ClusterError(f"{archive} was imported but names no image: {output.strip()[-500:]}")
    receipt.parent.mkdir(exist_ok=True)
    receipt.write_text("\n".join(names))
    return names


def images(instance: Instance) -> list[str]:
    """Names of the images that the node has."""
    return ctr(instance, "images", "list", "--quiet").split()
