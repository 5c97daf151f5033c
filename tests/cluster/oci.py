"""An image of one layer, written without any tool: for what has no base, such as the pause container."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_EPOCH = "1970-01-01T00:00:00Z"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    archive: Path, name: str, layer: bytes, *, machine: str, entrypoint: Sequence[str] = (), user: str = ""
) -> None:
    """Write an OCI archive named `name` whose only layer is the tar `layer`; `machine` is as uname says it."""
    config = {
        "architecture": _ARCHITECTURES[machine],
        "os": "linux",
        "created": _EPOCH,
        "config": {"Entrypoint": list(entrypoint), "User": user},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        # containerd refuses an image whose history does not account for its layers.
        "history": [{"created": _EPOCH, "created_by": "tests/cluster/oci.py"}],
    }
    config_bytes = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_bytes),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    }
    manifest_bytes = json.dumps(manifest).encode()
    entry = _descriptor(str(manifest["mediaType"]), manifest_bytes)
    # containerd looks for the first, buildah for the second.
    names = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    entry["annotations"] = dict.fromkeys(names, name)
    index = {"schemaVersion": 2, "manifests": [entry]}
    blobs = {f"blobs/sha256/{_digest(b)[7:]}": b for b in (config_bytes, manifest_bytes, layer)}
    head = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    archive.write_bytes(tar_of({**head, **blobs}))


def tar_of(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """A tar of regular files owned by root, the same bytes for the same input."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(body), mode
            tar.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def _digest(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


def _descriptor(media_type: str, body: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(body), "size": len(body)}
