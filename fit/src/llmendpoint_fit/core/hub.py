"""A model on a hub: which two pages say what decides its memory, and how to read them. No weights are loaded, because
the sizes of their files are known.

The pages are those of Hugging Face's HTTP API, which mirrors have too: the list of files at a commit, and config.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import ModelMissing
from .config import parse_config
from .model import Model, estimated
from .weights import shape_of, unread, weight_files

PUBLIC_HUB = "https://huggingface.co"


def files_path(repository: str, revision: str) -> str:
    """Path of the list of files. `size` is that of the content, even if the content is stored elsewhere."""
    return f"/api/models/{quote(repository)}/tree/{quote(revision, safe='')}"


def config_path(repository: str, revision: str) -> str:
    """Path of config.json."""
    return f"/{quote(repository)}/resolve/{quote(revision, safe='')}/config.json"


def hub_model(config: Any, files: Any, where: str) -> Model:
    """The model that the two pages describe. Raises FitError."""
    if not isinstance(config, Mapping):
        raise ModelMissing(f"{where}: config.json is no JSON object")
    shape, sizes = parse_config(config), file_sizes(files if isinstance(files, list) else ())
    names = weight_files(sizes)
    if not names:
        return estimated(shape)
    shape = shape_of(shape, names)
    return Model(shape, unread(sum(sizes[name] for name in names), shape))


def file_sizes(files: Iterable[Any]) -> dict[str, int]:
    """Path -> bytes of the files in the list."""
    found = (f for f in files if isinstance(f, Mapping) and f.get("type") == "file")
    return {str(f.get("path")): int(f.get("size") or 0) for f in found}
