"""What is known of a revision's model, for the condition CapacityFits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel

Text = Annotated[str, Field(max_length=128)]


class KnownAttention(ApiModel):
    """A group of layers that store the same amount of memory for each token."""

    layers: int
    """Number of layers in this group."""
    width: int
    """Number of elements that one layer stores for each token, keys and values together."""
    split: int
    """Largest number of accelerators that can divide the keys and values: the number of key heads."""
    window: int | None = None
    """Length of the sliding window in tokens. If not set, these layers attend to all tokens."""
    expanded: int | None = None
    """Only with latent attention: number of elements of the keys and values of all heads, which the engine computes
    from the latent."""


class KnownModel(ApiModel):
    """What decides how much memory a model needs, from its config.json and its weight files."""

    architecture: Text
    """Architecture, as config.json names it."""
    attention: Annotated[tuple[KnownAttention, ...], Field(max_length=8)]
    """Groups of layers that store the same amount of memory for each token."""
    heads: int
    """Number of query heads."""
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward layers."""
    vocabulary: int
    """Number of tokens in the vocabulary."""
    context: int | None = None
    """Number of tokens of the longest sequence that the model supports."""
    dtype: Text
    """Number format that config.json names."""
    quantization: Text | None = None
    """Quantization method and number of bits. If not set, the weights are not quantized."""
    parameters: int = 0
    """Number of parameters, computed from config.json."""
    active_parameters: int = 0
    """Number of parameters that one token uses. In a mixture of experts it is below `parameters`."""
    weights: Annotated[dict[str, int], Field(max_length=32)]
    """Size of the weights in bytes, for each number format in which they are stored."""


class CapacityStatus(ApiModel):
    """What the operator knows about the model of a revision. It is kept here, so that the operator does not read
    the model again after a restart."""

    revision: Annotated[str, Field(max_length=63)]
    """Hash of the revision."""
    model: KnownModel | None = None
    """Figures of the model. If not set, the operator could not read them."""
    problem: Annotated[str, Field(max_length=1024)] | None = None
    """Why the operator could not read the model."""
