"""buildah with a storage of its own, and the machine's settings for package indexes given to RUN steps."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cache, progress
from tests.cluster.baseimage import BASE, COMPILER, Base, obtain_base

_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def build(
    dockerfile: Path, name: str, archive: Path, *, target: str | None, compiles: bool, context: Path
) -> None:
    """Build a Dockerfile on the local bases and write it as an OCI archive called `name`."""
    _load(BASE)
    argv = ["bud", "--pull-never", "--layers", "--format=oci", "--isolation=chroot", "--http-proxy=true"]
    argv += [f"--build-arg=BASE_BUILD={BASE.name}", f"--build-arg=BASE_RUNTIME={BASE.name}"]
    if compiles:
        _load(COMPILER)
        argv += [f"--build-arg=BASE_COMPILER={COMPILER.name}"]
    argv += [f"--volume={volume}" for volume in _build_volumes()]
    argv += [f"--target={target}"] if target else []
    argv += [f"--file={dockerfile}", f"--tag={name}", str(context)]
    _buildah(*argv, downloads=True)
    _buildah("push", "--disable-compression", name, f"oci-archive:{archive}:{name}")


def _load(base: Base) -> None:
    """Put a base into the builder's storage when it is not there, or is an older one."""
    archive = obtain_base(base)
    folder = cache.root() / "buildah"
    folder.mkdir(parents=True, exist_ok=True)
    loaded = folder / base.part
    if loaded.exists() and loaded.read_text() == str(archive):
        return
    _buildah("pull", f"oci-archive:{archive}:{base.name}")
    loaded.write_text(str(archive))


def _buildah(*args: str, downloads: bool = False) -> str:
    folder = cache.root() / "buildah"
    storage = [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=overlay"]
    with cache.exclusive("buildah"):
        return (progress.download if downloads else progress.run)(["buildah", *storage, *args])


def _build_volumes() -> Sequence[str]:
    """Files that RUN steps see and images do not: CA bundle, index settings, uv's cache.

    None of it may be in a Dockerfile: it is this machine's, and would end in the image.
    """
    folder = cache.root() / "buildah" / "settings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pip.conf").write_text(_pip_settings())
    (folder / "uv.toml").write_text(_uv_settings())
    uv = Path(sys.executable).with_name("uv")
    packages_cache = progress.run([uv, "cache", "dir"]).strip()
    Path(packages_cache).mkdir(parents=True, exist_ok=True)
    volumes = [
        f"{folder / 'pip.conf'}:/etc/pip.conf:ro",
        f"{folder / 'uv.toml'}:/etc/uv/uv.toml:ro",
        f"{packages_cache}:/root/.cache/uv:rw",
    ]
    bundle = os.environ.get("SSL_CERT_FILE", _CA_BUNDLE)
    if Path(bundle).exists():
        volumes.append(f"{bundle}:{_CA_BUNDLE}:ro")
    return volumes


def _pip_settings() -> str:
    """pip's effective settings that concern the index; the CA bundle is where the base has it."""
    listed = progress.run([sys.executable, "-m", "pip", "config", "list"])
    wanted = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")
    lines = ["[global]", f"cert = {_CA_BUNDLE}"]
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in wanted:
            lines.append(f"{name} = {value.strip(chr(39))}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _uv_settings() -> str:
    """uv's index from its environment or pip's, and trust in the system's CA bundle."""
    lines = ["system-certs = true"]
    index = (
        os.environ.get("UV_DEFAULT_INDEX")
        or os.environ.get("UV_INDEX_URL")
        or os.environ.get("PIP_INDEX_URL")
    )
    if index:
        lines += ["[[index]]", f'url = "{index}"', "default = true"]
    return "\n".join(lines) + "\n"
