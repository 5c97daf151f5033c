"""docs/concepts/structured-output.md: answers follow their grammars, greedy and sampled, with drafts, preempted, and several of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer

from llmendpoint_server.core.batch import Scheduled
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.loop import Engine
from llmendpoint_server.engine.sampling.masks import Masks
from llmendpoint_server.guidance import make_tokenizer
from llmendpoint_server.weights.locate import resolve_model
from server.tests.engine import schemas
from server.tests.engine.test_speculation import Bench, page_bytes

DEMO = resolve_model("embedded://demo")
SCHEMAS, QUEUE = 500, 250
JSON = Grammar(
    "json_schema",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 6},
                "sizes": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": 99},
                    "maxItems": 3,
                },
                "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]},
            },
            "required": ["name", "sizes", "colour"],
            "additionalProperties": False,
        }
    ),
)
WORD = Grammar("regex", "[0-9]{3}-[a-z]{4}")
CHOICE = Grammar("choice", '["yes", "no", "perhaps \\"so\\""]')
CALL = Grammar(
    "lark",
    'start: "<call>" %json {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], '
    '"additionalProperties": false, "x-guidance": {"whitespace_flexible": false}} "</call>"',
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(DEMO, max_model_len=2048, max_num_seqs=64, max_batched_tokens=512)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


class Answers:
    """What an engine answered: text and end by (request, index)."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self.engine = engine
        self._prompt = tuple(tokenizer.encode("What is a rollout?").ids)
        self._tokenizer = tokenizer
        self._outputs: dict[tuple[str, int], list[RequestOutput]] = {}

    def ask(self, name: str, grammar: Grammar | None, n: int = 1, **params: Any) -> None:
        sampling = SamplingParams(**{"max_tokens": 600, "temperature": 0, "grammar": grammar, **params})
        assert self.engine.add(Request(name, self._prompt, sampling, n=n)) == []

    def run(self) -> Iterator[tuple[str, str, FinishReason | None, str]]:
        """Name, text, end and detail of each answer."""
        while not self.engine.scheduler.idle:
            for output in self.engine.step():
                self._outputs.setdefault((output.id, output.index), []).append(output)
        assert self.engine.scheduler.blocks.held == 0
        for (name, _), outputs in sorted(self._outputs.items()):
            tokens = [token for output in outputs for token in output.tokens]
            yield name, self._tokenizer.decode(tokens), outputs[-1].finish, outputs[-1].detail


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_every_answer_to_500_schemas_of_growing_difficulty_is_valid(
    temperature: float, bench: Bench, tokenizer: Tokenizer
) -> None:
    answers = Answers(bench.plain(), tokenizer)
    made = {str(number): schemas.make(number) for number in range(SCHEMAS)}
    for start in range(0, SCHEMAS, QUEUE):
        for number in range(start, start + QUEUE):
            asked = schemas.without_closing(made[str(number)]) if number % 2 else made[str(number)]
            grammar = Grammar("json_schema", json.dumps(asked), "" if number % 4 else None)
            answers.ask(str(number), grammar, temperature=temperature, seed=number)
        found = list(answers.run())
    cut = 0
    assert len(found) == SCHEMAS
    for name, text, finish, detail in found:
        assert not detail, (made[name], detail)
        if finish is FinishReason.LENGTH:
            cut += 1
            continue
        checker = jsonschema.FormatChecker(
            ["uuid", "ipv4", "email"]
        )  # a date of the year 0 has the form of a date
        # Exact: a double of many digits may be rounded to the bound that it must not reach.
        value = json.loads(text, parse_float=Decimal)
        jsonschema.validate(value, made[name], jsonschema.Draft202012Validator, format_checker=checker)
    assert cut <= SCHEMAS // 10, "max_tokens cuts few: a model that is lost writes a number without an end"


def follows(name: str, text: str) -> bool:
    match name:
        case "json":
            jsonschema.validate(json.loads(text, parse_float=Decimal), json.loads(JSON.text))
            return True
        case "word":
            return re.fullmatch("[0-9]{3}-[a-z]{4}", text) is not None
        case "choice":
            return text in json.loads(CHOICE.text)
        case _:
            return re.fullmatch(r'<call>\{"sure":(true|false)\}</call>', text) is not None


KINDS = {"json": JSON, "word": WORD, "choice": CHOICE, "call": CALL}


def test_each_kind_holds_beside_free_text_whatever_else_the_request_asks_for(
    bench: Bench, tokenizer: Tokenizer
) -> None:
    answers = Answers(bench.plain(), tokenizer)
    others: dict[str, Any] = {
        "min_tokens": 30, "ignore_eos": True, "logit_bias": ((0, -100.0), (2, -100.0)), "frequency_penalty": 2.0,
        "min_p": 1.0, "temperature": 1.0, "logprobs": 2,
    }  # fmt: skip
    answers.ask("free", None, max_tokens=20, ignore_eos=True)
    for name, grammar in KINDS.items():
        answers.ask(name, grammar, n=3, seed=5, **others)
    for name, text, finish, detail in answers.run():
        assert not detail
        if name != "free":
            assert finish is FinishReason.STOP, (name, text)
            assert follows(name, text), (name, text)


def test_answers_are_the_same_alone_with_drafts_and_preempted(bench: Bench, tokenizer: Tokenizer) -> None:
    def found(engine: Engine) -> list[tuple[str, str, FinishReason | None, str]]:
        answers = Answers(engine, tokenizer)
        for name, grammar in KINDS.items():
            answers.ask(name, grammar, n=6, temperature=0.8, seed=9)
        return list(answers.run())

    expected = found(bench.plain())
    assert all(finish is FinishReason.STOP and follows(name, text) for name, text, finish, _ in expected)
    drafting = bench.speculating_by_lookup()
    assert found(drafting) == expected
    assert drafting.scheduler.counters.draft_tokens > 0
    few = Bench(
        DEMO, max_model_len=128, max_num_seqs=8, max_batched_tokens=64, kv_cache_memory=8 * page_bytes(bench)
    )
    crowded = few.plain()
    assert found(crowded) == expected
    assert crowded.scheduler.counters.preemptions > 0


def test_a_grammar_that_fails_ends_its_own_request_alone_and_says_why(
    bench: Bench, tokenizer: Tokenizer
) -> None:
    answers = Answers(bench.plain(), tokenizer)
    answers.ask("bad", Grammar("regex", "(a"), n=2)
    answers.ask(
        "explodes",
        Grammar("regex", "(.{1,1000}){1,1000}"),
        ignore_eos=True,
        logit_bias=((0, -100.0), (2, -100.0)),
    )
    answers.ask("word", WORD)
    found = {name: (text, finish, detail) for name, text, finish, detail in answers.run()}
    assert found["bad"][1] is FinishReason.GRAMMAR
    assert "unclosed group" in found["bad"][2]
    assert found["explodes"][1:] != (FinishReason.STOP, "")
    assert follows("word", found["word"][0])
    assert found["word"][1] is FinishReason.STOP


def test_max_tokens_cuts_an_answer_as_everywhere(bench: Bench, tokenizer: Tokenizer) -> None:
    answers = Answers(bench.plain(), tokenizer)
    answers.ask("word", WORD, max_tokens=2)
    [(_, text, finish, _)] = list(answers.run())
    assert finish is FinishReason.LENGTH
    assert 0 < len(text) < 8


SLOW = {
    "ambiguous": Grammar("lark", 'start: e\ne: e e | "a" | "b" | "c" | ""'),
    "states": Grammar("regex", "(.{0,200}a){20}"),
}  # fmt: skip


@pytest.mark.parametrize("what", SLOW)
def test_a_grammar_whose_masks_are_slow_does_not_hold_up_the_others(
    what: str, bench: Bench, tokenizer: Tokenizer
) -> None:
    """Each of these takes up to 0.1 s for each token, and all rows of a step wait for its mask."""
    answers = Answers(bench.plain(), tokenizer)
    anything = {"temperature": 2.0, "max_tokens": 400, "min_tokens": 400, "seed": 1}
    answers.ask("slow", SLOW[what], n=4, logit_bias=((0, -100.0), (2, -100.0)), **anything)
    answers.ask("word", WORD)
    answers.ask("free", None, max_tokens=300, ignore_eos=True)
    found = {(name, finish) for name, _, finish, _ in answers.run()}
    assert {("word", FinishReason.STOP), ("free", FinishReason.LENGTH)} <= found
    assert ("slow", FinishReason.LENGTH) not in found


@pytest.mark.parametrize(("vocab_size", "goes_on"), [(1761, True), (40, False)])
def test_a_grammar_that_needs_a_token_without_a_logit_ends_its_request(
    vocab_size: int, goes_on: bool
) -> None:
    """The tokenizer may know more tokens than the model."""
    masks = Masks(lambda: make_tokenizer(DEMO, 1761, (0, 2)), 1, vocab_size)
    request = Request("a", (1,), SamplingParams(5, grammar=Grammar("choice", '["rollout"]')))
    row = Scheduled(Sequence(request, seed=0, tokens=[1], names=[], table=[0]), 0, 1)
    pending = masks.begin([row])
    assert pending is not None
    [mask] = pending.result().values()
    assert bool(mask.fault) is not goes_on
    assert not mask.bits.any() or goes_on
