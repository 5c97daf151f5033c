"""The peers' Python environments: build/peers/<name>/, or a folder that BENCH_PEERS names.

Each is made by uv from peers/<name>.txt, and made again when that file has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "peers"
UV = Path(sys.executable).parent / "uv"
LIMIT_S = 3600
"""llama.cpp is compiled for this machine's processor, which takes minutes."""

OWN = ""
"""The environment of this project itself."""

_LLAMACPP_PARTS = ("LLAVA_BUILD", "MTMD_BUILD", "LLAMA_CURL", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_SERVER")
BUILDING = {
    "CMAKE_ARGS": " ".join(["-DGGML_NATIVE=ON", *(f"-D{part}=OFF" for part in _LLAMACPP_PARTS)]),
    "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1),
}


class CannotRun(Exception):
    """A contender cannot run here; the message says why, in one line."""


def folder() -> Path:
    return Path(os.environ.get("BENCH_PEERS") or ROOT / "build" / "peers").absolute()


def python(name: str, say: Callable[[str], None]) -> Path:
    """The interpreter of an environment, which is made if it is not there. Raises CannotRun."""
    if name == OWN:
        return Path(sys.executable)
    place = folder() / name
    interpreter, stamp = place / "bin" / "python", place / "requirements.sha256"
    wanted = _digest(name)
    if not (stamp.exists() and stamp.read_text() == wanted):
        say(f"making the environment {name} (minutes the first time)")
        _make(name, place)
        stamp.write_text(wanted)
    return interpreter


def _make(name: str, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    overrides = SCRIPTS / f"{name}-overrides.txt"
    chosen = ("--overrides", str(overrides)) if overrides.exists() else ()
    install = (str(UV), "pip", "install", "--quiet", "--python", str(place / "bin" / "python"))
    for command in (
        (str(UV), "venv", "--quiet", "--python", sys.executable, str(place)),
        (*install, "-r", str(SCRIPTS / f"{name}.txt"), *chosen),
    ):
        try:
            subprocess.run(
                command, check=True, timeout=LIMIT_S, env={**os.environ, **BUILDING}, stderr=subprocess.PIPE
            )
        except (subprocess.SubprocessError, OSError) as error:
            shutil.rmtree(place, ignore_errors=True)  # a failed environment may take gigabytes
            output = getattr(error, "stderr", None) or str(error).encode()
            raise CannotRun(f"cannot be installed: {last_line(output.decode(errors='replace'))}") from error


def _digest(name: str) -> str:
    found = hashlib.sha256()
    for path in (SCRIPTS / f"{name}.txt", SCRIPTS / f"{name}-overrides.txt"):
        if path.exists():
            found.update(path.read_bytes())
    return found.hexdigest()


def last_line(output: str) -> str:
    """The last line that says something, cut to a readable length."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
