"""Where `kubectl llm plan` gets a model from: a folder, a hub, or numbers on the command line."""

from __future__ import annotations

import json
import math
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from llmendpoint_fit.core.hub import PUBLIC_HUB, config_path, files_path, hub_model
from llmendpoint_fit.core.model import Attention, Model, Shape, estimated
from llmendpoint_fit.errors import FitError, ModelMissing
from llmendpoint_fit.folder import read_folder

from .errors import BadUsage, NoAccess, NotFound, Refused

TIMEOUT_S = 30
HUB = "hf://"
NOT_HERE = ("pvc://", "embedded://", "s3://", "oci://")


def read_model(source: str, hub: str | None) -> Model:
    """The model that a source means: a folder, `hf://org/name[@revision]` or `org/name`. Raises CliError."""
    try:
        path = Path(source.removeprefix("file://"))
        if path.is_dir():
            return read_folder(path)
        if source.startswith(NOT_HERE) or source.startswith(("file://", "/", ".")):
            raise NotFound(
                f"{source} is not on this machine; give a local copy of the model's folder, or a model of a hub"
            )
        if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", source.removeprefix(HUB)):
            raise BadUsage(
                f"{source} is neither a folder nor a model of a hub; write ./folder or organisation/name"
            )
        return _from_hub(source.removeprefix(HUB), hub or os.environ.get("HF_ENDPOINT") or PUBLIC_HUB)
    except ModelMissing as error:
        raise NotFound(str(error)) from None
    except FitError as error:
        raise Refused(str(error)) from None


def invented(parameters: str, layers: int, kv_heads: int, head_dim: int, context: int | None) -> Model:
    """A dense model with this number of parameters in 16 bits. What the figures do not say is as in a Llama of that
    size. Raises BadUsage."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([bBmM]?)", parameters)
    if found is None or not float(found[1]):
        raise BadUsage(f"--parameters {parameters}: write a number like 8B, 0.5B or 350M")
    count = int(float(found[1]) * {"b": 10**9, "m": 10**6, "": 1}[found[2].lower()])
    hidden = max(int(math.sqrt(count / layers / 12) // head_dim) * head_dim, kv_heads * head_dim)
    shape = Shape(
        architecture="as given", attention=(Attention(layers, 2 * kv_heads * head_dim, kv_heads),),
        heads=hidden // head_dim, hidden=hidden, intermediate=4 * hidden, vocabulary=128_000, context=context,
        dtype="bfloat16", parameters=count, active_parameters=count,
    )  # fmt: skip
    return estimated(shape)


def _from_hub(model: str, hub: str) -> Model:
    repository, _, revision = model.partition("@")
    where = f"{repository}@{revision or 'main'} at {hub}"
    config = _page(hub, config_path(repository, revision or "main"), where)
    return hub_model(config, _page(hub, files_path(repository, revision or "main"), where), where)


def _page(hub: str, path: str, where: str) -> Any:
    """The JSON of a page. `HF_TOKEN` gives access to models that are not public."""
    request = urllib.request.Request(hub.rstrip("/") + path, headers={"User-Agent": "kubectl-llm"})
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise NoAccess(
                f"{where} is not public (the hub answered {error.code}): set HF_TOKEN to a token that may read it"
            ) from None
        if error.code == 404:
            raise NotFound(f"the hub has no {path.rpartition('/')[2]} for {where}") from None
        raise NoAccess(f"the hub answered {error.code} for {where}") from None
    except (OSError, ValueError) as error:
        raise NoAccess(
            f"the hub gave no usable answer for {where}: {error}; a local folder needs no hub"
        ) from None
