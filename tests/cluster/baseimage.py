"""The bases that the test bed builds our images on: Debian 12 with Python 3.11, made from Debian's packages; and the same with g++."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache, oci, packages, progress
from tests.cluster.errors import ToolMissing

PYTHON = "3.11"
_SUITE = "bookworm"
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/var/log/*")


@dataclass(frozen=True)
class Base:
    """A base image: the part of its name, and its Debian packages."""

    part: str
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"localhost/llmendpoint-{self.part}:dev"


BASE = Base("base", ("python3", "python3-venv", "ca-certificates"))
COMPILER = Base("compiler", (*BASE.packages, "g++", "libpython3-dev"))


def obtain_base(base: Base = BASE) -> Path:
    """The OCI archive of a base image."""
    key = cache.digest_of(_SUITE, *base.packages, *_LEFT_OUT, Path(__file__), Path(oci.__file__))
    folder = cache.obtain(f"{base.part}-image", key, lambda folder: _make(base, folder))
    cache.forget_older(f"{base.part}-image", keep=folder)
    return folder / "image.tar"


def _make(base: Base, folder: Path) -> None:
    packages.install(packages.IMAGE_PACKAGES)
    what = f"image {base.name}: Debian {_SUITE} with Python {PYTHON}"
    with progress.step(f"{what} (about 80 s the first time)"):
        root = folder / "root.tar"
        argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(base.packages)}"]
        argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        argv += ["--dpkgopt=force-unsafe-io", _SUITE, str(root), "-"]
        progress.download(argv, stdin=_sources(), env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
        oci.write_image(folder / "image.tar", base.name, root.read_bytes(), machine=platform.machine())
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
