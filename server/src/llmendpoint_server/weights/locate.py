"""Which folder `--model` of the server means, and what identifies its content."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llmendpoint_server.errors import BadConfiguration, ModelNotFound
from llmendpoint_server.weights.cached import cached_model
from llmendpoint_server.weights.plan import lacking

EMBEDDED = Path(__file__).with_name("embedded")
KNOWN_SOURCES = "embedded://demo, file:///path, hf://org/name or a plain path"


def resolve_model(source: str, revision: str | None = None, flag: str = "--model") -> Path:
    """The folder that `flag` means. An hf:// model is downloaded at `revision` unless the cache has it.

    Raises BadConfiguration for a kind of source that this server does not load, ModelNotFound if there is no model,
    ModelUnavailable if the hub does not answer.
    """
    scheme, separator, rest = source.partition("://")
    if not separator:
        folder = Path(source)
    elif scheme == "file":
        url = urlsplit(source)
        if url.netloc not in ("", "localhost"):
            raise BadConfiguration(
                f"{flag} {source}: a file URL has three slashes, as in file:///{url.netloc}{url.path}"
            )
        folder = Path(unquote(url.path))
    elif scheme == "hf":
        folder = cached_model(rest, revision)
    elif scheme == "embedded":
        folder = EMBEDDED / rest
        if rest not in (known := sorted(path.name for path in EMBEDDED.glob("*") if path.is_dir())):
            raise ModelNotFound(
                f"{flag} {source}: there is no embedded model {rest!r}; there is {', '.join(known)}"
            )
    else:
        hint = "; the operator mounts a claim and passes its path" if scheme == "pvc" else ""
        raise BadConfiguration(
            f"{flag} {source}: {scheme}:// is not a source that this server loads{hint}. Use {KNOWN_SOURCES}."
        )
    return check_folder(folder, source, flag)


def check_folder(folder: Path, source: str, flag: str = "--model") -> Path:
    if not folder.is_dir():
        raise ModelNotFound(f"{flag} {source}: {folder} is not a folder with a model in it.")
    if missing := lacking(path.name for path in folder.iterdir() if path.is_file()):
        raise ModelNotFound(f"{flag} {source}: {folder} has no {missing}")
    return folder.resolve()


def content_revision(folder: Path) -> str:
    """A hash that changes when a file does (by name, size and time of change): the root of the prefix cache's hash
    chain."""
    digest = blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        if path.is_file():
            stat = path.stat()
            digest.update(f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
