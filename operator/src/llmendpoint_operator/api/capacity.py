"""What is known of a revision's model, for the condition CapacityFits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel

Text = Annotated[str, Field(max_length=128)]


class KnownAttention(ApiModel):
    """Layers that keep the same of each token."""

    layers: int
    """How many layers."""
    width: int
    """Elements of a token in each of them, keys and values together."""
    split: int
    """Over how many accelerators they can be divided: the key heads."""
    window: int | None = None
    """Length of the sliding window in tokens. Absent: these layers look at all tokens."""
    expanded: int | None = None
    """Of a latent: elements of the keys and values of all heads that are computed from it."""


class KnownModel(ApiModel):
    """What decides how much memory a model takes, from its config.json and its weight files."""

    architecture: Text
    """As the config names it."""
    attention: Annotated[tuple[KnownAttention, ...], Field(max_length=8)]
    """Groups of layers that store equally much for each token."""
    heads: int
    """Query heads."""
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward layers."""
    vocabulary: int
    """Tokens that there are."""
    context: int | None = None
    """Tokens of the longest sequence that the model was made for."""
    dtype: Text
    """Number format that the config names."""
    quantization: Text | None = None
    """Method and bits, where the weights are quantized."""
    parameters: int = 0
    """Parameters, counted from the config."""
    active_parameters: int = 0
    """Those that one token uses: fewer in a mixture of experts."""
    weights: Annotated[dict[str, int], Field(max_length=32)]
    """Bytes of the weights by the number format that they are stored in."""


class CapacityStatus(ApiModel):
    """What was found out about the model of a revision, so that a restart of the operator asks nobody again."""

    revision: Annotated[str, Field(max_length=63)]
    """Hash of the revision."""
    model: KnownModel | None = None
    """What it is. Absent: it could not be read."""
    problem: Annotated[str, Field(max_length=1024)] | None = None
    """Why it could not be read."""
