"""docs/concepts/sizing.md, "The formulas": a draft model takes its weights and its pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmendpoint_fit.core.accelerators import BY_NAME
from llmendpoint_fit.core.config import parse_config
from llmendpoint_fit.core.engines import draft_of
from llmendpoint_fit.core.memory import Load, kv_sequence_bytes, weights_bytes
from llmendpoint_fit.core.model import estimated
from llmendpoint_fit.core.text import fit_text
from llmendpoint_fit.core.verdict import Outcome, Question, evaluate

from .configs import LLAMA_8B

EIGHT = estimated(parse_config(LLAMA_8B))


def ask(name: str) -> Question:
    return Question(EIGHT, Load(max_model_len=8192, max_num_seqs=4), BY_NAME[name].memory)


def test_a_draft_model_takes_its_weights_and_pages_of_four_sequences() -> None:
    draft = estimated(parse_config(LLAMA_8B | {"num_hidden_layers": 2}))
    alone = ask("a100-80gb")
    fit, with_draft = evaluate(alone), evaluate(replace(alone, draft=draft))
    own = 4 * kv_sequence_bytes(draft, alone.load, 8192)
    assert with_draft.draft == weights_bytes(draft, alone.load) + own
    assert with_draft.cache == fit.cache - with_draft.draft
    assert "draft model" in fit_text(with_draft, 4)
    assert "draft model" not in fit_text(fit, 4)


def test_the_pages_of_a_draft_model_take_an_eighth_at_most_and_a_large_one_fits_nowhere() -> None:
    alone = ask("l4")
    tight = evaluate(replace(alone, draft=estimated(parse_config(LLAMA_8B | {"num_hidden_layers": 4}))))
    left = tight.memory - tight.weights - tight.overhead
    weights = weights_bytes(estimated(parse_config(LLAMA_8B | {"num_hidden_layers": 4})), alone.load)
    assert tight.draft == weights + int((left - weights) / 8)
    assert evaluate(replace(alone, draft=EIGHT)).outcome is Outcome.WEIGHTS_TOO_LARGE


def test_a_draft_model_that_the_engine_does_not_read_is_refused() -> None:
    other = replace(EIGHT, shape=replace(EIGHT.shape, quantization="aqlm 2 bits"))
    question = replace(ask("h200"), reads=frozenset({"awq 4 bits"}))
    assert evaluate(question).outcome.serves
    assert evaluate(replace(question, draft=other)).outcome is Outcome.QUANTIZED


@pytest.mark.parametrize(
    ("arguments", "name", "draft"),
    [
        (["--draft-model=hf://org/small"], "llmendpoint", "hf://org/small"),
        (["--x", "--draft-model", "hf://org/small", "--y"], "llmendpoint", "hf://org/small"),
        (["--draft-model"], "llmendpoint", None),
        (["--draft-model="], "llmendpoint", None),
        (["--num-speculative-tokens=3"], "llmendpoint", None),
        (["--draft-model=hf://org/small"], "vllm", None),
    ],
)
def test_the_arguments_of_the_bundled_engine_name_its_draft_model(
    arguments: list[str], name: str, draft: str | None
) -> None:
    assert draft_of({"runtime": {"name": name, "args": arguments}}) == draft
