"""The base that the test bed builds our images on: Debian 12 with Python 3.11, made from Debian's packages."""

import os
import platform
from pathlib import Path

from tests.cluster import cache, oci, packages, progress
from tests.cluster.errors import ToolMissing

NAME = "localhost/llmendpoint-base:dev"
PYTHON = "3.11"
_SUITE = "bookworm"
_INCLUDED = ("python3", "python3-venv", "ca-certificates")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/var/log/*")


def obtain_base() -> Path:
    """The OCI archive of the base image, named `NAME`."""
    key = cache.digest_of(_SUITE, *_INCLUDED, *_LEFT_OUT, Path(__file__), Path(oci.__file__))
    folder = cache.obtain("base-image", key, _make)
    cache.forget_older("base-image", keep=folder)
    return folder / "image.tar"


def _make(folder: Path) -> None:
    packages.install(packages.IMAGE_PACKAGES)
    with progress.step(f"base image: Debian {_SUITE} with Python {PYTHON} (about 80 s the first time)"):
        root = folder / "root.tar"
        argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(_INCLUDED)}"]
        argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        argv += ["--dpkgopt=force-unsafe-io", _SUITE, str(root), "-"]
        progress.download(argv, stdin=_sources(), env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
        oci.write_image(folder / "image.tar", NAME, root.read_bytes(), machine=platform.machine())
        root.unlink()


def _sources() -> str:
    """The machine's own Debian sources, so that a mirror or proxy that it uses is used here too."""
    layout = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = progress.run(
        ["apt-get", "indextargets", "--format", layout, "Created-By: Packages", "Origin: Debian"]
    )
    lines = [line for line in listed.splitlines() if f" {_SUITE}" in line and line.endswith(" main")]
    if not lines:
        raise ToolMissing(
            f"this machine's apt sources have no Debian {_SUITE}, which the images' base is made from; add them, or"
            " build the images elsewhere from the Dockerfiles' default bases"
        )
    return "\n".join(lines) + "\n"
