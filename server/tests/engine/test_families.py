"""docs/concepts/architecture.md: each family that the gate names gives the logits of its own forward, on every path that may serve it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import gate, native
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.in_place import InPlace
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.quantizing import Quantization, quantize
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.protocol import Configure

TEXT_ONLY = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text"}
FAMILIES = [TEXT_ONLY.get(name, name) for name in gate.SUPPORTED]
CPU = torch.device("cpu")
LENGTHS = (5, 40, 23, 70)
STEPS = (
    ((0, 0, 5), (1, 0, 20), (2, 0, 22)),
    ((2, 22, 1), (1, 20, 20), (3, 0, 50)),
    ((3, 50, 19),),
    ((3, 69, 1),),
)
"""(sequence, first token, tokens): whole prompts, chunks, and single tokens beside them"""
PATHS = {
    "torch's operators": (False, "float32", None),
    "kernels": (True, "float32", None),
    "kernels in bfloat16": (True, "bfloat16", None),
    "kernels with int8 weights": (True, "float32", "int8"),
    "kernels with int4 weights": (True, "float32", "int4"),
}
"""with kernels or without, dtype, quantization"""
EXACT = 2e-5
"""The largest difference of any position's logits in float32, as a share of their spread."""
TYPICAL = {"kernels in bfloat16": 0.04}
"""The largest median of all positions. Some positions differ more: rounding sends a token to another expert."""


def texts() -> list[list[int]]:
    ids = random.Random(3)
    return [[ids.randrange(2, 512) for _ in range(length)] for length in LENGTHS]


def paged(runner: ModelRunner) -> list[torch.Tensor]:
    """The logits of every position of every text, `[length, vocabulary]`."""
    sequences = [
        Sequence(
            Request(str(n), tuple(text), SamplingParams(1)), 0, text, [], table=list(range(n, n + 20, 4))
        )
        for n, text in enumerate(texts())
    ]
    found = [torch.zeros(0)] * len(sequences)
    for rows in STEPS:
        step = runner.backend.prepare(Batch(tuple(Scheduled(sequences[n], *span) for n, *span in rows), 0.0))
        step.logit_rows = torch.arange(step.ids.shape[1])
        logits = forward(runner.model, runner.backend, step).float()
        place = 0
        for n, _, count in sorted(rows, key=lambda row: (row[2] > 1, row[1] > 0, row[2])):
            found[n] = torch.cat([found[n].view(-1, logits.shape[1]), logits[place : place + count]])
            place += count
    return found


def differences(runner: ModelRunner, folder: Path, quantization: Quantization | None) -> list[float]:
    """Of each position of each text, from the model's own forward in float32, with the weights that the quantized ones stand for."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    kernels = native.find(CPU, torch.float32)
    if quantization and kernels:
        quantize(model, kernels, quantization)
    found = []
    with torch.inference_mode():
        for text, logits in zip(texts(), paged(runner), strict=True):
            own = model(input_ids=torch.tensor([text]), use_cache=False).logits[0]
            found += [gate.difference(ours, theirs) for ours, theirs in zip(logits, own, strict=True)]
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_position_has_the_logits_of_the_familys_own_forward(
    family: str, path: str, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, dtype, quantization = PATHS[path]
    if not kernels:
        monkeypatch.setattr(native, "llmendpoint_native", None)
    elif native.find(CPU, getattr(torch, dtype)) is None:
        pytest.skip(f"no CPU kernels for {dtype} here")
    folder = model_folder(family)
    runner, _ = load(
        Configure(
            model_path=str(folder), device="cpu", dtype=dtype, max_model_len=128, quantization=quantization
        )
    )
    assert isinstance(runner.backend, InPlace if kernels else Gathered)
    found = differences(runner, folder, quantization)
    assert len(found) == sum(LENGTHS)
    if path in TYPICAL:
        assert median(found) <= TYPICAL[path]
    else:
        assert max(found) <= EXACT


def test_one_position_that_went_to_another_expert_does_not_refuse_a_model_and_two_do() -> None:
    theirs = torch.randn(6, 100, generator=torch.Generator().manual_seed(0))
    ours = theirs.clone()
    ours[[1, 5]] += 1  # one that was prefilled, and one that was decoded
    assert gate.worst_median(ours, theirs) == 0
    ours[3] += 1
    assert gate.worst_median(ours, theirs) > 0.5
    ours = theirs.clone()
    ours[2, 7] = torch.nan
    assert gate.worst_median(ours, theirs) == torch.inf
