"""docs/concepts/sizing.md: a model's weights are in memory once, also when its layers cannot be made faster and it is loaded again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from llmendpoint_server.engine import bring_up, loading, surgery
from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.protocol import Configure


@pytest.mark.parametrize("fails_by", ["other logits", "an exception"])
def test_the_first_model_is_gone_before_the_second_is_loaded(
    fails_by: str, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_model, operate = loading.load_model, surgery.operate
    loaded: list[weakref.ref[Any]] = []

    def watched(folder: Folder, device: torch.device, dtype: torch.dtype, form: None) -> Any:
        assert all(one() is None for one in loaded), "two models are in memory"
        model = load_model(folder, device, dtype, form)
        loaded.append(weakref.ref(model))
        loaded.append(weakref.ref(model.lm_head.weight))  # type: ignore[attr-defined]  # a Llama
        return model

    def botched(model: Any, *how: Any) -> None:
        operate(model, *how)
        if fails_by == "an exception":
            model.model.norm.scale = None
        else:
            with torch.inference_mode():
                model.model.norm.scale.weight.zero_()

    monkeypatch.setattr(loading, "load_model", watched)
    monkeypatch.setattr(surgery, "operate", botched)
    gc.disable()  # what only a collection at the right moment frees is not freed
    try:
        configure = Configure(str(model_folder("llama")), device="cpu", dtype="float32", max_model_len=64)
        kept, info = bring_up.load(configure)
    finally:
        gc.enable()
    assert (info.architecture, info.attention, info.kernels) == ("llama", "gathered", "none")
    assert len(loaded) == 4, "it was to be loaded twice"
    kept.check()


def test_projections_that_are_joined_free_their_weights_one_after_another(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = surgery.joined
    replaced: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def watched(linears: Sequence[nn.Linear]) -> nn.Linear | None:
        alive.append(sum(one() is not None for one in replaced))
        replaced.extend(weakref.ref(one.weight) for one in linears)
        return joined(linears)

    monkeypatch.setattr(surgery, "joined", watched)
    model = AutoModelForCausalLM.from_pretrained(model_folder("llama"))
    gc.disable()  # what only a collection at the right moment frees is not freed
    try:
        surgery.join_projections(model)
    finally:
        gc.enable()
    assert alive == [0] * 8  # q/k/v and gate/up of four layers
