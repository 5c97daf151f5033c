"""What the formulas know of a model. It travels as JSON: from the one-shot Job's pod to the operator, and in status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

SAFETENSORS_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""What an engine converts to the dtype that it is told. Whole numbers and 8-bit floats are quantized weights, and
stay."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Layers that keep the same of each token: `width` elements, keys and values together. `split`: over how many
    accelerators that can be divided (the key heads; 1 for a latent, which each accelerator keeps whole). `window`: tokens
    after which an old one is looked at no more. `expanded`: of a latent, the elements of the keys and values of all heads
    that are computed from it."""

    layers: int
    width: int
    split: int
    window: int | None = None
    expanded: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a config.json. `context`: the longest sequence that the model was made for."""

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
    """A model of which no weight file is known: its parameters in the dtype that its config names."""
    name = {dtype: key for key, dtype in SAFETENSORS_FLOATS.items()}[shape.dtype]
    return Model(shape, {name: shape.parameters * ELEMENT_BYTES[shape.dtype]})


def model_as_json(model: Model) -> dict[str, Any]:
    """As JSON, without what is absent."""
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
    """The reverse. Raises ValueError, KeyError or TypeError when it is something else."""
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
