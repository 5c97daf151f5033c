"""A model's forward over pages: its attention layers ask a backend, through transformers' `AttentionInterface`.

Each attention layer calls the interface with queries, keys and values of one flat row of tokens `[1, heads, T, head_dim]`. A `Step` says
which of those tokens belong to which sequence; `module.layer_idx` is the layer. A causal mask is never passed: the step implies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import AttentionInterface

from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.step import Step

NAME = "llmendpoint_paged"


@dataclass(slots=True)
class _Attending:
    """What the attention layers of one model work on; None except during a forward."""

    work: tuple[Backend, Step] | None = None


def route_through_pages(model: CausalLM) -> None:
    """Let the model's attention layers ask a backend from now on. Raises what transformers raises for a model without the
    interface."""
    model.set_attn_implementation(NAME)
    attending = _Attending()
    for module in model.modules():
        module.attending = attending


def forward(model: CausalLM, backend: Backend, step: Step) -> torch.Tensor:
    """Logits `[rows, vocab]` of the rows in `step.logit_rows`."""
    attending: _Attending = model.attending
    attending.work = backend, step
    try:
        with torch.inference_mode():
            output = model(
                input_ids=step.ids,
                position_ids=step.positions,
                use_cache=False,
                logits_to_keep=step.logit_rows,
            )
    finally:
        attending.work = None
    logits: torch.Tensor = output.logits
    return logits[0]


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The function behind the interface: `[1, heads, T, dim]` in, `[1, T, heads, value_dim]` out."""
    work = cast(_Attending, module.attending).work
    assert work is not None, "the model runs outside of `forward`"
    backend, step = work
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rules = Rules(scale, sliding_window, softcap, s_aux)
    out = backend.attend(step, cast(int, module.layer_idx), query, key, value, rules)
    return out[None], None


AttentionInterface.register(NAME, _attend)
