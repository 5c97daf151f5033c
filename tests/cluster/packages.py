"""Programs that come from Debian's packages.

What starts a service when installed (containerd), and what would push Docker's own packages off the machine (containerd,
runc), is not installed: the packages are downloaded, checked by apt, and unpacked into the cache.
"""

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.errors import CommandFailed, ToolMissing
from tests.downloads import cause_in

NODE_PACKAGES = ("iptables", "iproute2", "libseccomp2", "mount")
IMAGE_PACKAGES = ("buildah", "mmdebstrap")
_UNPACKED = ("containerd", "runc", "containernetworking-plugins")


def missing(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that are not installed."""
    return [name for name in packages if not _is_installed(name)]


def install(packages: Sequence[str]) -> None:
    """Install what is missing with apt; nothing happens where all is there."""
    wanted = missing(packages)
    if not wanted:
        return
    _require_apt(wanted)
    with cache.exclusive("apt"), progress.step(f"installing Debian packages: {' '.join(wanted)}"):
        _update_lists()
        argv = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        progress.download([*argv, "--download-only"], env=environment)
        progress.run([*argv, "--no-download"], env=environment, to_its_end=True)


def unpacked_runtime() -> Path:
    """A folder with usr/bin/containerd, usr/sbin/runc and usr/lib/cni/*, unpacked from Debian's packages."""

    def make(folder: Path) -> None:
        _require_apt(_UNPACKED)
        downloads = folder / "downloads"
        downloads.mkdir()
        with cache.exclusive("apt"), progress.step(f"unpacking {', '.join(_UNPACKED)} (not installed)"):
            _update_lists()
            # apt's own user cannot write here; as root it downloads all the same, with the same checks.
            progress.download(
                ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *_UNPACKED], cwd=downloads
            )
            for package in sorted(downloads.glob("*.deb")):
                progress.run(["dpkg-deb", "-x", package, folder])
        shutil.rmtree(downloads)

    return cache.obtain("runtime", cache.digest_of(_release(), *_UNPACKED), make)


def _update_lists() -> None:
    """Without `any`, apt calls it a success when a server did not answer. A source of the machine that fails for good
    need not have what we want: then the lists are taken as they are."""
    try:
        progress.download(["apt-get", "update", "-qq", "-o", "APT::Update::Error-Mode=any"])
    except CommandFailed as error:
        progress.say(f"not all package lists could be fetched: {cause_in(error.output)}")


def _is_installed(name: str) -> bool:
    try:
        status = progress.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", name])
    except CommandFailed:
        return False
    return status == "installed"


def _release() -> str:
    system = platform.freedesktop_os_release()
    return f"{system.get('ID')} {system.get('VERSION_ID')} {platform.machine()}"


def _require_apt(packages: Sequence[str]) -> None:
    if os.geteuid() != 0:
        raise ToolMissing(f"installing {', '.join(packages)} needs root")
    if not shutil.which("apt-get"):
        raise ToolMissing(
            f"{', '.join(packages)} come from Debian packages, and this machine has no apt-get. The whole node runs on"
            " Debian 12; the control plane (--control-plane) runs on any Linux"
        )
