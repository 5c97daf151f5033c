"""The environment of the clients: made once from requirements/clients.txt, and kept where the cluster's programs are."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from tests.cluster import cache, progress

LOCK = Path(__file__).parents[2] / "requirements" / "clients.txt"


def python() -> Path:
    """Python with the clients. It must write no bytecode: what is in the cache is used again only while it is unchanged."""
    uv = Path(sys.executable).with_name("uv")

    def make(folder: Path) -> None:
        with progress.step("installing the clients that tests/clients runs (0.5 GB)"):
            progress.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"])
            options = [
                "--quiet",
                "--require-hashes",
                "--compile-bytecode",
                "--python",
                folder / "venv/bin/python",
            ]
            progress.download([uv, "pip", "install", *options, "-r", LOCK])

    folder = cache.obtain("clients", cache.digest_of(LOCK, platform.python_version()), make, huge=True)
    cache.forget_older("clients", keep=folder, count=1)
    return folder / "venv" / "bin" / "python"
