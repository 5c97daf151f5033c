"""How much of one accelerator's memory a model takes. Bytes, tokens and counts; docs/concepts/sizing.md has the derivations.

| part | formula | source |
|---|---|---|
| weights | stored bytes (floats converted to the dtype asked for) / accelerators | the files themselves |
| weights, quantized, where the engine dequantizes them | parameters x bytes of the dtype | docs/concepts/weights.md |
| overhead | max(20 % of the weights, 1 GiB + activations) | the usual rule of 1.2 x weights; the floor is for small models |
| adapters | places x rank x (inputs + outputs of each linear layer) x 2, where the spec names any | arXiv 2106.09685, section 4.1 |
| activations | tokens of a step x (4 x hidden + 2 x intermediate / accelerators) x 2 + sequences x vocabulary x 4 | a layer's residual, norm and feed-forward rows, and the logits in fp32 |
| KV of a token and layer | 2 x key heads x head size x bytes | arXiv 1911.02150 (multi-query), 2305.13245 (grouped-query) |
| KV of a token and layer, latent | (latent rank + rotary part) x bytes, on each accelerator, where the engine keeps it, else heads x (key + value) x bytes | arXiv 2405.04434, section 2.1 |
| a draft model | its weights, and min(4 sequences, an eighth of what is left for KV) | docs/concepts/speculation.md |
| KV of a sequence in a windowed layer | min(tokens, window) where the engine frees what has left the window, else all | arXiv 2310.06825, section 2 |
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import ELEMENT_BYTES, SAFETENSORS_FLOATS, Attention, Model

GIB = 1024**3
OVERHEAD_SHARE = 0.2
CONTEXT_BYTES = GIB
"""On each accelerator: the driver's context, workspaces of kernels and collectives, and what the allocator cannot use."""

WHOLE_ATTENTION = frozenset({"Phi3ForCausalLM", "Olmo2ForCausalLM"})
"""Architectures of which the bundled engine gives each accelerator all heads (docs/concepts/parallelism.md)."""

DEFAULT_SEQUENCES = 256
DEFAULT_BATCHED_TOKENS = 8192
"""The defaults on an accelerator, both of the bundled engine and of vLLM."""


DRAFT_SEQUENCES, DRAFT_SHARE = 4, 1 / 8
"""The bundled engine has pages of a draft model for so many of the longest sequences, but no more than this share of the memory
for keys and values."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine must hold. None: the engine's or the model's own value. `dtype`: floats are converted to it.
    `kv_element_bytes`: 2, or 1 for an 8-bit cache. `kv_cache`: bytes of cache that the engine is told to take.
    `dequantizes`: the engine holds quantized weights in the dtype in which it computes. `frees_windows`: the engine frees what has left a window. `keeps_latents`: it keeps a latent instead of the keys and
    values that are computed from it. `divides_evenly`: it gives each of several accelerators as many key heads as any other, and divides no
    quantized weights. `adapters`: places for LoRA adapters, each for the rank `adapter_rank`."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    dtype: str | None = None
    kv_element_bytes: int | None = None
    kv_cache: int | None = None
    frees_windows: bool = False
    keeps_latents: bool = False
    dequantizes: bool = False
    divides_evenly: bool = False
    adapters: int = 0
    adapter_rank: int = 0

    @property
    def sequences(self) -> int:
        """Sequences in one batch."""
        return self.max_num_seqs or DEFAULT_SEQUENCES


def weights_bytes(model: Model, load: Load) -> int:
    """Bytes of the whole model as the engine holds it."""
    dtype, shape, total = load.dtype, model.shape, 0
    if load.dequantizes and shape.quantization is not None and shape.parameters:
        return shape.parameters * ELEMENT_BYTES[dtype or shape.dtype]
    for stored, size in model.weights.items():
        name = SAFETENSORS_FLOATS.get(stored)
        if dtype is not None and name is not None:
            size = size * ELEMENT_BYTES[dtype] // ELEMENT_BYTES[name]
        total += size
    return total


def kv_token_bytes(model: Model, load: Load, accelerators: int = 1) -> int:
    """Bytes of keys and values of one token in all layers, on one of the accelerators."""
    sharing = _sharing(model, load, accelerators)
    width = sum(a.layers * _width(a, load, sharing) for a in model.shape.attention)
    return width * kv_element_bytes(model, load)


def kv_sequence_bytes(model: Model, load: Load, tokens: int, accelerators: int = 1) -> int:
    """Bytes of keys and values of a sequence of `tokens` tokens, on one of the accelerators."""
    total, sharing = 0, _sharing(model, load, accelerators)
    for a in model.shape.attention:
        kept = min(tokens, a.window) if a.window is not None and load.frees_windows else tokens
        total += a.layers * _width(a, load, sharing) * kept
    return total * kv_element_bytes(model, load)


def kv_element_bytes(model: Model, load: Load) -> int:
    """Bytes of one element: as asked for, else those of the dtype in which the engine computes."""
    if load.kv_element_bytes is not None:
        return load.kv_element_bytes
    return ELEMENT_BYTES[load.dtype or model.shape.dtype]


def draft_cache_bytes(draft: Model, load: Load, context: int, room: int) -> int:
    """Bytes of the keys and values that a draft model keeps, of the `room` for those of both models."""
    longest = min(context, draft.shape.context or context)
    return min(DRAFT_SEQUENCES * kv_sequence_bytes(draft, load, longest), int(room * DRAFT_SHARE))


def activation_bytes(model: Model, load: Load, accelerators: int = 1) -> int:
    """Bytes of activations at the peak of a step, on one of the accelerators."""
    shape = model.shape
    tokens = max(DEFAULT_BATCHED_TOKENS, load.sequences)
    rows = 4 * shape.hidden + -(-2 * shape.intermediate // accelerators)
    return tokens * rows * 2 + load.sequences * shape.vocabulary * 4


def overhead_bytes(model: Model, load: Load, accelerators: int = 1) -> int:
    """Bytes of all that is neither weights nor keys and values, on one of the accelerators."""
    share = int(OVERHEAD_SHARE * weights_bytes(model, load) / accelerators)
    least = max(share, CONTEXT_BYTES + activation_bytes(model, load, accelerators))
    return least + adapter_bytes(model, load, accelerators)


def adapter_bytes(model: Model, load: Load, accelerators: int = 1) -> int:
    """Bytes of the places for LoRA adapters of every linear layer, on one of the accelerators; a place is taken whether it
    is used or not."""
    shape, rows = model.shape, 0
    for a in shape.attention:
        query = shape.hidden if a.expanded is not None else shape.heads * (a.width // (2 * a.split))
        attention = 2 * (shape.hidden + query) + 2 * shape.hidden + a.width
        rows += a.layers * (attention + 3 * (shape.hidden + shape.intermediate))
    return -(-load.adapters * load.adapter_rank * rows * 2 // accelerators)


def _sharing(model: Model, load: Load, accelerators: int) -> int:
    """Accelerators that share the keys and values."""
    return 1 if load.divides_evenly and model.shape.architecture in WHOLE_ATTENTION else accelerators


def _width(attention: Attention, load: Load, accelerators: int) -> int:
    """Elements on one accelerator: whole key heads, at least one of them."""
    if attention.expanded is not None and not load.keeps_latents:
        return attention.expanded if load.divides_evenly else -(-attention.expanded // accelerators)
    heads = -(-attention.split // min(accelerators, attention.split))
    return attention.width // attention.split * heads
