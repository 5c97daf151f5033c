"""Makes modules of engine/fused.py, and shows that they compute the same as what they replace.

A module is replaced by what it computes, not by its class. `fused_*` build the replacement from what a module holds, run both on random numbers, and return None
if the results differ. So a family that adds a step of its own keeps its module.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.watched import Watched
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.fused import FusedAttention, FusedLayers, FusedMlp, FusedNorm
from llmendpoint_server.engine.gate import TOLERANCE as WHOLE
from llmendpoint_server.engine.gate import difference
from llmendpoint_server.engine.linear import joined, plain_linears
from llmendpoint_server.engine.operators import Gate, Heads, Operators, Scale
from llmendpoint_server.engine.step import Step

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Largest root-mean-square difference of a module's output, as a share of its spread. bf16 differs by some 0.5 % because
the kernels round once where torch rounds after each operator."""
_TOKENS = 4
"""So few that layers of few rows are computed as they will be; with more tokens the gate compares the logits."""
_KNOWN = frozenset(
    {"self", "hidden_states", "position_embeddings", "attention_mask", "past_key_values", "kwargs"}
)
"""What an attention may be called with. Another name may change what it computes."""
_KNOWN_LAYER = _KNOWN | {"position_ids", "use_cache"}
_PARTS = {
    "input_layernorm": FusedNorm,
    "self_attn": FusedAttention,
    "post_attention_layernorm": FusedNorm,
    "mlp": FusedMlp,
}


@dataclass(frozen=True, slots=True)
class Fusing:
    """What replacements are made with, and compared on. `backend`: with a page that may be written."""

    operators: Operators
    backend: Backend

    @staticmethod
    def by(operators: Operators) -> Fusing:
        return Fusing(operators, operators.probe())

    def linear(self, *parts: nn.Linear, gate: Gate | None = None) -> nn.Module | None:
        """Layers of one input as one layer; None if the kernels do not compute it."""
        whole = joined(parts)
        return None if whole is None else self.operators.linear(whole, gate)

    def agree(self, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        return difference(ours, theirs) <= TOLERANCE[theirs.dtype]

    def random(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return drawn.to(self.operators.device, dtype)

    def states(self, hidden: int, dim: int, dtype: torch.dtype) -> dict[str, Any]:
        """What a layer is called with: random states, and positions that turn heads of `dim` by random angles."""
        drawn = torch.rand(1, _TOKENS, dim // 2, generator=torch.Generator().manual_seed(1))
        angles = drawn.repeat(1, 1, 2).to(self.operators.device) * 6
        return {
            "hidden_states": self.random(1, _TOKENS, hidden, dtype=dtype),
            "position_embeddings": (angles.cos().to(dtype), angles.sin().to(dtype)),
            "attention_mask": None,
        }


def fused_norm(module: Any, fusing: Fusing) -> FusedNorm | None:
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    if weight.dtype not in TOLERANCE or getattr(module, "bias", None) is not None:
        return None
    # The mean is not 0: otherwise a norm that subtracts it would differ by 1 / sqrt(dim) only.
    x = fusing.random(_TOKENS, len(weight), dtype=weight.dtype) * 2 + 1
    expected = module(x)
    if expected.shape != x.shape or expected.dtype != x.dtype:
        return None
    scales = weight.float(), 1 + weight.float()  # Gemma's families keep the difference from 1
    norms = [FusedNorm(fusing.operators, Scale(scale.contiguous(), eps)) for scale in scales]
    norm = min(norms, key=lambda one: difference(one(x), expected))
    return norm if difference(norm(x), expected) <= TOLERANCE[x.dtype] else None


def fused_mlp(module: Any, fusing: Fusing) -> FusedMlp | None:
    linears = plain_linears(module, ("gate_proj", "up_proj", "down_proj"))
    if linears is None or linears[2].in_features % fusing.operators.multiple:
        return None
    down = fusing.linear(linears[2])
    x = fusing.random(1, _TOKENS, linears[0].in_features, dtype=linears[0].weight.dtype)
    for gate in fusing.operators.gates:
        gate_up = fusing.linear(*linears[:2], gate=gate)
        if gate_up is None or down is None:
            return None
        mlp = FusedMlp(gate_up, down)
        # The large input shows a limit on what lies between the layers.
        if all(fusing.agree(mlp(y), module(y)) for y in (x, 32 * x)):
            return mlp
    return None


def _step(backend: Backend) -> Step:
    """One sequence from position 0 on, in the first page."""
    ids = [0] * _TOKENS
    sequence = Sequence(Request("probe", tuple(ids), SamplingParams(1)), 0, ids, [], table=[0])
    return backend.prepare(Batch((Scheduled(sequence, 0, _TOKENS),), 0.0))


def fused_attention(module: Any, fusing: Fusing) -> FusedAttention | None:
    linears = plain_linears(module, ("q_proj", "k_proj", "v_proj", "o_proj"))
    dim = getattr(module, "head_dim", None)
    if linears is None or not isinstance(dim, int) or dim % fusing.operators.multiple:
        return None
    if not set(inspect.signature(module.forward).parameters) <= _KNOWN:
        return None
    if getattr(getattr(module, "config", None), "clip_qkv", None) is not None:
        return None  # random inputs may not reach the limit
    norms: tuple[Scale, Scale] | None = None
    if hasattr(module, "q_norm") or hasattr(module, "k_norm"):
        query, key = (fused_norm(getattr(module, name, None), fusing) for name in ("q_norm", "k_norm"))
        if query is None or key is None or {len(query.scale.weight), len(key.scale.weight)} != {dim}:
            return None
        norms = query.scale, key.scale
    qkv, out = fusing.linear(*linears[:3]), fusing.linear(linears[3])
    if qkv is None or out is None:
        return None
    heads = Heads(linears[0].out_features // dim, linears[1].out_features // dim, dim)
    states = fusing.states(linears[0].in_features, dim, linears[0].weight.dtype)
    watched = Watched(fusing.backend)
    module.attending.work = watched, _step(fusing.backend)
    try:
        expected, _ = module(**states)
        rules = watched.rules.get(module.layer_idx)
        if rules is None:
            return None
        fused = FusedAttention(
            fusing.operators, qkv, out, heads, norms, module.layer_idx, module.attending, rules
        )
        return fused if fusing.agree(fused(**states)[0], expected) else None
    finally:
        module.attending.work = None


def fused_layers(layers: nn.ModuleList, model: Any, fusing: Fusing) -> FusedLayers | None:
    """`layers` of `model` whose parts are fused, as one module; None if they are more than their parts, or the model treats them
    differently.

    Each layer must compute the same alone, also with small states: then what it adds to them counts. All together need only agree as whole models must, because rounding grows from layer to layer.
    """
    if not layers or not all(_is_plain(layer) for layer in layers):
        return None
    backend = fusing.backend
    if len({_shape(layer) for layer in layers}) > 1 or not _in_turn(layers, model, backend):
        return None
    together = fusing.operators.layers(layers)
    first = cast(FusedAttention, layers[0].self_attn)
    qkv = cast(Any, first.qkv)
    states = fusing.states(qkv.in_features, first.heads.dim, qkv.dtype)
    first.attending.work = backend, _step(backend)
    try:
        for layer in layers:
            alone = fusing.operators.layers(nn.ModuleList([layer]))
            for scale in (1, 1 / 64):
                given = {**states, "hidden_states": states["hidden_states"] * scale}
                if difference(alone(**given), layer(**given)) > TOLERANCE[qkv.dtype]:
                    return None
        expected = states["hidden_states"]
        for layer in layers:
            expected = layer(**{**states, "hidden_states": expected})
        agrees = difference(together(**states), expected) <= WHOLE[expected.dtype]
        return cast(FusedLayers, together) if agrees else None
    finally:
        first.attending.work = None


def _is_plain(layer: Any) -> bool:
    """Whether it has the parts of a Llama's layer and no other, nor weights or inputs of its own."""
    parts = {name: type(part) for name, part in layer.named_children()}
    own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
    known = set(inspect.signature(type(layer).forward).parameters) <= _KNOWN_LAYER
    return parts == _PARTS and not own and known and layer.self_attn.rules.sinks is None


def _in_turn(layers: nn.ModuleList, model: Any, backend: Backend) -> bool:
    """Whether the model calls each layer once with what the one before returned, and all with the same position embeddings: as one
    module they get those of the first. Some families have others for layers with a window."""
    calls: list[tuple[nn.Module, Any, Any, Any]] = []

    def note(layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        given = args[0] if args else named["hidden_states"]
        calls.append((layer, given, named["position_embeddings"], out))

    hooks = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        forward(model, backend, _step(backend))
    finally:
        for hook in hooks:
            hook.remove()
    if [layer for layer, *_ in calls] != list(layers):
        return False
    handed = all(given is out for (_, _, _, out), (_, given, _, _) in pairwise(calls))
    turns = [torch.stack(turn) for _, _, turn, _ in calls]
    return handed and all(torch.equal(turn, turns[0]) for turn in turns)


def _shape(layer: Any) -> tuple[object, ...]:
    down = layer.mlp.down
    return layer.self_attn.heads, down.in_features, down.out_features, down.dtype
