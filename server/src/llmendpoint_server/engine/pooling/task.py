"""What a model is for, by its files: to generate text, to embed it, or to score pairs of texts.

The first name in config.json's `architectures` says it: `…ForSequenceClassification` scores, a bare `…Model` embeds, and
what else there is generates. A folder with modules.json is of sentence-transformers: it embeds whatever its architecture
is, unless that scores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.errors import ModelNotFound, UnsupportedPooling
from llmendpoint_server.protocol import Task

Pooled = Literal["mean", "cls", "last"]
POOLED: dict[str, Pooled] = {
    "mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls", "lasttoken": "last", "last_token": "last",
}  # fmt: skip
"""By the names in the file of the pooling module."""
ACTIVATIONS = {"Sigmoid": True, "Identity": False}
"""Of a model that scores, and whether it is the sigmoid."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a vector is made of a text's last hidden states. `longest`: tokens that the model was trained for, if its files
    say; None: as its config.json has it."""

    kind: Pooled
    normalize: bool
    longest: int | None = None


def task_of(folder: Folder) -> Task:
    names = getattr(folder.config, "architectures", None) or [""]
    if str(names[0]).endswith("ForSequenceClassification"):
        return "score"
    if (folder.path / "modules.json").is_file() or str(names[0]).endswith("Model"):
        return "generate" if str(names[0]).endswith("LMHeadModel") else "embed"
    return "generate"


def read_pooling(folder: Folder) -> Pooling:
    """Raises UnsupportedPooling for what cannot be done, and ModelNotFound for files that cannot be read."""
    if not (folder.path / "modules.json").is_file():
        return Pooling("cls" if is_encoder(folder.config) else "last", normalize=True)
    modules = _read(folder.path / "modules.json")
    if not isinstance(modules, list):
        raise ModelNotFound(f"{folder.path}/modules.json is not a list of modules.")
    kind, normalize = None, False
    for module in modules:
        name = str(module.get("type", "")).rpartition(".")[2]
        if name == "Pooling":
            kind = _pooled(folder, folder.path / str(module.get("path", "")) / "config.json")
        elif name == "Normalize":
            normalize = True
        elif name != "Transformer":
            raise UnsupportedPooling(folder.architecture, f"its modules.json has a module {name}")
    return Pooling(kind or "mean", normalize, _longest(folder.path / "sentence_bert_config.json"))


def _pooled(folder: Folder, path: Path) -> Pooled:
    if not path.is_file():
        raise ModelNotFound(f"There is no {path}, which modules.json names: it says how the model pools.")
    config = _read(path)
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else list(named or ())
    modes += [
        name.removeprefix("pooling_mode_")
        for name, value in config.items()
        if name.startswith("pooling_mode_") and value is True
    ]
    if len(modes) == 1 and modes[0] in POOLED:
        return POOLED[modes[0]]
    raise UnsupportedPooling(folder.architecture, f"it pools by {' and '.join(modes) or 'nothing'}")


def _longest(path: Path) -> int | None:
    value = _read(path).get("max_seq_length") if path.is_file() else None
    return value if isinstance(value, int) and value > 0 else None


def is_encoder(config: Any) -> bool:
    """Whether each token sees those after it. Bare decoders have key-value heads, or a causal head of their own."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    return config.model_type in MASKED or config.model_type not in CAUSAL


def scores_by_sigmoid(folder: Folder) -> bool:
    """Of a model that scores pairs. Raises UnsupportedPooling if it has other labels than one, or another activation."""
    config = folder.config
    if config.num_labels != 1:
        why = f"it classifies into {config.num_labels} labels, and only a model with one, which scores, is served"
        raise UnsupportedPooling(folder.architecture, why)
    own = getattr(config, "sentence_transformers", None)
    named = own.get("activation_fn") if isinstance(own, dict) else None
    named = named or getattr(config, "sbert_ce_default_activation_function", None) or "Sigmoid"
    activation = str(named).rpartition(".")[2]
    if activation not in ACTIVATIONS:
        raise UnsupportedPooling(folder.architecture, f"its score goes through {activation}")
    return ACTIVATIONS[activation]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelNotFound(f"{path} cannot be read: {error}") from error
