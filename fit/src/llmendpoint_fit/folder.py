"""Reads a model in a folder: its config, and only the headers of its weight files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .core.config import parse_config
from .core.model import Model, Shape, estimated
from .core.weights import INDEX, LENGTH_BYTES, header_length, parse_header, shape_of, unread, weight_files
from .errors import ConfigError, ModelMissing, WeightsError


def read_folder(folder: Path) -> Model:
    """The model. Without weight files its parameters are counted from the config. Raises FitError."""
    config = _json(folder / "config.json")
    if config is None:
        raise ModelMissing(f"{folder} has no config.json; expected is a folder as transformers writes it")
    shape = parse_config(config)
    names = weight_files((path.name for path in folder.iterdir()), _json(folder / INDEX))
    if not names:
        return estimated(shape)
    shape = shape_of(shape, names)
    weights: dict[str, int] = {}
    for name in names:
        for dtype, size in _file(folder / name, shape).items():
            weights[dtype] = weights.get(dtype, 0) + size
    return Model(shape, weights)


def _file(path: Path, shape: Shape) -> dict[str, int]:
    """Bytes by dtype. A file that is shorter than its header says was cut: WeightsError."""
    try:
        size = path.stat().st_size
        if path.suffix != ".safetensors":
            return unread(size, shape)
        with path.open("rb") as file:
            length = header_length(file.read(LENGTH_BYTES), path.name)
            found = parse_header(file.read(length), path.name)
    except OSError as error:
        raise WeightsError(f"{path.name} cannot be read: {error.strerror}") from None
    expected = LENGTH_BYTES + length + sum(found.values())
    if size < expected:
        raise WeightsError(
            f"{path.name} has {size} bytes of {expected}: it is cut short; copy or download it again"
        )
    return found


def _json(path: Path) -> dict[str, Any] | None:
    """None if there is no such file."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(path.name, f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(path.name, "is no JSON object")
    return found
