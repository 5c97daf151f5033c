"""What the formulas know of a model. It travels as JSON: from the one-shot Job's pod to the operator, and in an
endpoint's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

SAFETENSORS_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""What an engine converts to the dtype that it is given. Whole numbers and 8-bit floats are quantized weights and stay."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Layers that keep the same for each token: `width` elements, keys and values together. `split`: the most
    accelerators over which these can be divided (the number of key heads; 1 for a latent, which each accelerator keeps
    whole). `window`: a token further back than this is not read any more. `expanded`: for a latent, the elements of the
    keys and values of all heads that are computed from it."""

    layers: int
    width: int
    split: int
    window: int | None = None
    expanded: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts of a config.json. `context`: the longest sequence that the model was made for."""

    architecture: str
    attention: tuple[Attention, ...]
    heads: int
    hidden: int
    intermediate: int
    vocabulary: int
    context: int | None
    dtype: str
    quantization: str | None = None
    parameters: int = 0
    active_parameters: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A shape and its weights: bytes by the dtype that they are stored in, as safetensors names it."""

    shape: Shape
    weights: Mapping[str, int]

    @property
    def stored(self) -> int:
        """Bytes of the weights as they are stored."""
        return sum(self.weights.values())


def estimated(shape: Shape) -> Model:
    """A model without a known weight file: its parameters in the dtype that its config names."""
    name = {dtype: key for key, dtype in SAFETENSORS_FLOATS.items()}[shape.dtype]
    return Model(shape, {name: shape.parameters * ELEMENT_BYTES[shape.dtype]})


def model_as_json(model: Model) -> dict[str, Any]:
    """The model as JSON, without absent fields."""
    shape = model.shape
    attention = [
        {"layers": a.layers, "width": a.width, "split": a.split}
        | ({"window": a.window} if a.window else {})
        | ({"expanded": a.expanded} if a.expanded else {})
        for a in shape.attention
    ]
    found: dict[str, Any] = {
        "architecture": shape.architecture,
        "attention": attention,
        "heads": shape.heads,
        "hidden": shape.hidden,
        "intermediate": shape.intermediate,
        "vocabulary": shape.vocabulary,
        "context": shape.context,
        "dtype": shape.dtype,
        "quantization": shape.quantization,
        "parameters": shape.parameters,
        "activeParameters": shape.active_parameters,
        "weights": dict(sorted(model.weights.items())),
    }
    return {key: value for key, value in found.items() if value is not None}


def model_from_json(found: Mapping[str, Any]) -> Model:
    """The reverse of `model_as_json`. Raises ValueError, KeyError or TypeError for anything else."""
    attention = tuple(
        Attention(int(a["layers"]), int(a["width"]), int(a["split"]), a.get("window"), a.get("expanded"))
        for a in found["attention"]
    )
    shape = Shape(
        architecture=str(found["architecture"]),
        attention=attention,
        heads=int(found["heads"]),
        hidden=int(found["hidden"]),
        intermediate=int(found["intermediate"]),
        vocabulary=int(found["vocabulary"]),
        context=found.get("context"),
        dtype=str(found["dtype"]),
        quantization=found.get("quantization"),
        parameters=int(found.get("parameters", 0)),
        active_parameters=int(found.get("activeParameters", 0)),
    )
    return Model(shape, {str(key): int(value) for key, value in found["weights"].items()})
