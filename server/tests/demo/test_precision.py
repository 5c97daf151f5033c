"""docs/reference/llmendpoint.md: `engine.dtype: auto` takes bfloat16, which keeps 99 % of the tokens of the demo model's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine import gate
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.protocol import Configure
from llmendpoint_server.weights.locate import resolve_model
from server.tests.demo.test_demo_model import TWENTY


@pytest.mark.slow
def test_bf16_agrees_with_fp32_in_99_percent_of_the_answers_tokens() -> None:
    folder = resolve_model("embedded://demo")
    tokenizer = ModelTokenizer(folder)
    models = [
        AutoModelForCausalLM.from_pretrained(folder, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)
    ]
    agreed = total = 0
    for question, answer in TWENTY:
        prompt = tokenizer.encode(
            tokenizer.render_chat([{"role": "user", "content": question}]), add_special_tokens=False
        )
        ids = torch.tensor([[*prompt, *tokenizer.encode(answer + "<|im_end|>", add_special_tokens=False)]])
        with torch.inference_mode():
            exact, rounded = (
                model(input_ids=ids).logits[0, len(prompt) - 1 : -1].argmax(-1) for model in models
            )
        agreed += int((exact == rounded).sum())
        total += len(exact)
    assert total > 500
    assert agreed / total >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("quantization", "agree", "off"), [("int8", 0.99, 0.02), ("int4", 0.97, 0.15)])
def test_quantized_weights_agree_with_fp32_in_most_of_the_answers_tokens(
    quantization: Literal["int8", "int4"], agree: float, off: float
) -> None:
    """docs/concepts/weights.md has the measured figures. `off`: the error of the logits, as a share of their spread."""
    pytest.importorskip("llmendpoint_native", reason="compiled with g++ on x86_64 only")
    found = beside_fp32(
        Configure(str(resolve_model("embedded://demo")), device="cpu", quantization=quantization)
    )
    print(f"{quantization}: {found}")
    assert found.tokens > 500
    assert found.agreed >= agree
    assert found.off <= off


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "off"), [("int8", 0.01), ("fp8", 0.04)])
def test_keys_and_values_in_eight_bits_agree_with_fp32_in_99_percent_of_the_answers_tokens(
    kept: Literal["int8", "fp8"], off: float
) -> None:
    pytest.importorskip("llmendpoint_native", reason="compiled with g++ on x86_64 only")
    found = beside_fp32(
        Configure(str(resolve_model("embedded://demo")), device="cpu", dtype="float32", kv_cache_dtype=kept)
    )
    print(f"{kept}: {found}")
    assert found.agreed >= 0.99
    assert found.off <= off


@dataclass(frozen=True)
class Beside:
    """How a served model's logits compare with those in float32, over the tokens of all answers."""

    tokens: int
    agreed: float
    off: float


def beside_fp32(configure: Configure) -> Beside:
    folder = resolve_model("embedded://demo")
    tokenizer = ModelTokenizer(folder)
    exact = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    runner, _ = load(configure)
    ours, theirs = [], []
    for question, answer in TWENTY:
        chat = tokenizer.render_chat([{"role": "user", "content": question}])
        prompt = tokenizer.encode(chat, add_special_tokens=False)
        tokens = [*prompt, *tokenizer.encode(answer + "<|im_end|>", add_special_tokens=False)]
        request = Request("one", tuple(tokens), SamplingParams(1))
        pages = list(range(-(-len(tokens) // 16)))
        sequence = Sequence(request, 0, tokens, [], table=pages)
        step = runner.backend.prepare(Batch((Scheduled(sequence, 0, len(tokens)),), 0.0))
        step.logit_rows = torch.arange(len(prompt) - 1, len(tokens) - 1)
        ours.append(forward(runner.model, runner.backend, step).float())
        with torch.inference_mode():
            theirs.append(exact(input_ids=torch.tensor([tokens])).logits[0, len(prompt) - 1 : -1])
    one, other = torch.cat(ours), torch.cat(theirs)
    agreed = (one.argmax(-1) == other.argmax(-1)).float().mean()
    return Beside(len(one), float(agreed), gate.difference(one, other))
