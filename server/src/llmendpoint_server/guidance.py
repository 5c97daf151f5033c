"""llguidance, as both processes use it: the API process to see whether a grammar compiles, the engine for the masks of tokens.

The same limits hold in both, so that what the API process has taken compiles in the engine too, in the same bounded time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark
from tokenizers import Tokenizer

from llmendpoint_server.core.closing import closed
from llmendpoint_server.core.grammar import DEFAULT_WHITESPACE, Grammar
from llmendpoint_server.errors import ServerError

TRIED_TOKENS, FORCED_TOKENS_MAX = 4, 64
"""Tokens that are tried where there is a choice, and those that are followed in all."""
MESSAGE_LINES, MESSAGE_CHARACTERS = 4, 300
"""Of llguidance's text, which quotes the grammar."""

DEAD_END = "NoExtension"
"""llguidance's word for it: no token is allowed, and the text so far is not whole."""


class BadGrammar(ServerError):
    """The grammar cannot be used; the message says why."""


def parser_limits() -> LLParserLimits:
    """Bounds of time and memory. `max_lexer_states`: 1 to 2 kB and some 70 µs each; 2,000 are enough for every schema of the tests,
    with a vocabulary of 150k too. `step_lexer_fuel`: about 14,000 a millisecond of one mask; 20,000 are enough for them."""
    return LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=50_000,
        step_max_items=50_000,
        max_lexer_states=5_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def make_tokenizer(folder: Path, vocab_size: int, ends: Iterable[int]) -> LLTokenizer:
    """The model's own tokens. `vocab_size`: of its logits. `ends`: its end-of-sequence tokens. Raises BadGrammar if llguidance
    cannot read the tokenizer, or the model has no such token."""
    ends = sorted(ends)
    if not ends:
        raise BadGrammar("This model has no end-of-sequence token, so that an answer could not end.")
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        most = max(vocab_size, tokenizer.get_vocab_size(with_added_tokens=True))
        return LLTokenizer(tokenizer.to_str(), n_vocab=most, eos_token=ends)
    except Exception as error:  # any: both libraries raise their own, and bare Exception
        raise BadGrammar(f"llguidance cannot read this model's tokenizer: {short(str(error))}") from error


def compiled(tokenizer: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """A matcher at the grammar's start. May take long; holds Python's lock for little of that. Raises BadGrammar."""
    matcher = LLMatcher(tokenizer, source(grammar), log_level=0, limits=parser_limits())
    if matcher.is_error():
        raise BadGrammar(short(matcher.get_error()))
    return matcher


def check(tokenizer: LLTokenizer, grammar: Grammar) -> None:
    """Compile a grammar, and follow it for some tokens: some fail at the first branch. Raises BadGrammar."""
    matcher = compiled(tokenizer, grammar)
    chosen = 0
    for _ in range(FORCED_TOKENS_MAX):
        allowed = int.from_bytes(matcher.compute_bitmask(), "little")
        first = (allowed & -allowed).bit_length() - 1
        chosen += allowed.bit_count() > 1
        if matcher.is_stopped() or first < 0 or chosen > TRIED_TOKENS:
            break
        matcher.consume_token(first)
    if matcher.is_error():
        text = short(matcher.get_error())
        raise BadGrammar("No text follows it." if text.startswith(DEAD_END) else text)


def source(grammar: Grammar) -> str:
    """The grammar in llguidance's own form. Raises BadGrammar."""
    try:
        match grammar.kind:
            case "json_schema":
                schema = json.dumps(closed(json.loads(grammar.text)))
                return LLMatcher.grammar_from_json_schema(schema, defaults=_options(grammar.whitespace))
            case "regex":
                return LLMatcher.grammar_from_regex(grammar.text)
            case "choice":
                alternatives = " | ".join(json.dumps(one) for one in json.loads(grammar.text))
                return LLMatcher.grammar_from_lark(f"start: {alternatives}")
            case "lark":
                return LLMatcher.grammar_from_lark(any_to_lark(grammar.text))
            case "structural_tag":
                raise ValueError("A structural tag must be written as a grammar first.")
    except Exception as error:  # any: it raises ValueError, and the converter what it meets
        raise BadGrammar(short(str(error))) from error


def _options(whitespace: str | None) -> Any:
    """llguidance's type has all options, and takes some of them."""
    if whitespace == "":
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": DEFAULT_WHITESPACE if whitespace is None else whitespace}


def short(text: str) -> str:
    lines = [line.rstrip() for line in text.split("<non-verbose/>")[0].splitlines() if line.strip()]
    short = " / ".join(lines[:MESSAGE_LINES])[:MESSAGE_CHARACTERS]
    return short if short.endswith(".") else f"{short}."
