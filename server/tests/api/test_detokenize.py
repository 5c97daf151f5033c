"""docs/concepts/architecture.md: the API process speaks text: streamed pieces make the whole text, and a stop string is never shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from llmendpoint_server.api.detokenize import Detokenizer, StopStrings, TextStream
from llmendpoint_server.api.plain_tokens import PlainTokens, joins_texts
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.simulator.tokens import ByteTokenizer
from llmendpoint_server.weights.locate import resolve_model

TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))


def byte_fallback() -> Tokenizer:
    """As Llama 2, Mistral and Gemma have it: a character outside the vocabulary is its bytes, a token each."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefgh", "<eos>"]
    tokenizer = Tokenizer(
        BPE({word: n for n, word in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


BYTE_FALLBACK = byte_fallback()


def with_spaces_marked() -> Tokenizer:
    """As T5 and XLNet have it."""
    words = ["<unk>", *"▁abcdefgh中é", "▁a", "▁▁", "ab", "<eos>"]
    merges = [("▁", "a"), ("▁", "▁"), ("a", "b")]
    tokenizer = Tokenizer(BPE({word: n for n, word in enumerate(words)}, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


REAL = {
    "byte level": (TOKENIZER.decode, TOKENIZER.plain, 1761),
    **{
        name: (tokenizer.decode, PlainTokens(tokenizer.decode, tokenizer.token_to_id("a")), size)
        for name, tokenizer, size in (
            ("byte fallback", BYTE_FALLBACK, BYTE_FALLBACK.get_vocab_size()),
            ("marked spaces", with_spaces_marked(), with_spaces_marked().get_vocab_size()),
        )
    },
}


def grouped(tokens: Sequence[int], sizes: list[int]) -> list[Sequence[int]]:
    groups, at = [], 0
    while at < len(tokens):
        size = sizes[len(groups) % len(sizes)]
        groups.append(tokens[at : at + size])
        at += size
    return groups


@given(st.text(max_size=80), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_the_pieces_of_any_text_make_the_text_whatever_the_grouping(text: str, sizes: list[int]) -> None:
    text = text.replace("\ufffd", "")
    tokens = TOKENIZER.encode(text)
    whole = TOKENIZER.decode(tokens)
    detokenizer = Detokenizer(TOKENIZER.decode)
    pieces = [detokenizer.push(group) for group in grouped(tokens, sizes)]
    assert "".join(pieces) + detokenizer.finish() == whole
    assert not any("\ufffd" in piece for piece in pieces)


@given(
    st.text(st.sampled_from("ab c中\u1780\u0e81👋é"), max_size=80),
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
@example("\u1780" * 40, [1])
@example("\u1780" * 40, [10])
def test_characters_that_are_a_token_a_byte_come_out_once_each(text: str, sizes: list[int]) -> None:
    tokens = BYTE_FALLBACK.encode(text).ids
    detokenizer = Detokenizer(BYTE_FALLBACK.decode)
    pieces = [detokenizer.push(group) for group in grouped(tokens, sizes)]
    assert "".join(pieces) + detokenizer.finish() == BYTE_FALLBACK.decode(tokens)


@pytest.mark.parametrize("name", REAL)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_plain_tokens_give_the_same_pieces_as_the_decoder(
    name: str, data: st.DataObject, sizes: list[int]
) -> None:
    """Any tokens, most of them no text that a model would write."""
    decode, plain, size = REAL[name]
    common = st.sampled_from([token for token in range(size) if is_plain(plain, token)][:40])
    tokens = data.draw(st.lists(common | st.integers(0, size - 1), max_size=60))
    decoding, looking = Detokenizer(decode), Detokenizer(decode, plain)
    for group in grouped(tokens, sizes):
        assert looking.push(group) == decoding.push(group)
    assert looking.finish() == decoding.finish()


def test_a_plain_token_after_bytes_that_are_no_text_is_decoded_with_them() -> None:
    decode, plain, _ = REAL["byte fallback"]
    zero, high = (BYTE_FALLBACK.token_to_id(name) for name in ("<0x00>", "<0x80>"))
    tokens = [high, *[zero] * 7, high, zero]
    decoding, looking = Detokenizer(decode), Detokenizer(decode, plain)
    assert [looking.push([token]) for token in tokens] == [decoding.push([token]) for token in tokens]


def is_plain(plain: Mapping[int, str], token: int) -> bool:
    try:
        return bool(plain[token])
    except KeyError:
        return False


def test_most_tokens_of_a_text_are_not_decoded() -> None:
    calls: list[Sequence[int]] = []

    def decode(tokens: Sequence[int]) -> str:
        calls.append(tokens)
        return TOKENIZER.decode(tokens)

    detokenizer = Detokenizer(decode, TOKENIZER.plain)
    text = "The running batch takes new requests at every step. " * 5
    tokens = TOKENIZER.encode(text)
    assert "".join(detokenizer.push([token]) for token in tokens) + detokenizer.finish() == text
    assert len(calls) < 5


@pytest.mark.parametrize(
    ("decoder", "joins"),
    [
        (decoders.ByteLevel(), True),
        (decoders.Metaspace(), True),
        (BYTE_FALLBACK.decoder, True),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]), True),
        (decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]), False),
        (decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 1)]), False),
        (decoders.WordPiece(), False),
        (decoders.BPEDecoder(), False),
        (decoders.CTC(), False),
    ],
)
def test_only_decoders_that_join_texts_have_plain_tokens(decoder: decoders.Decoder, joins: bool) -> None:
    assert joins_texts(json.loads(decoder.__getstate__())) == joins


def test_tokens_without_text_cost_neither_what_follows_nor_its_space() -> None:
    end = BYTE_FALLBACK.token_to_id("<eos>")
    tokens = BYTE_FALLBACK.encode("ab").ids + [end] * 1000 + BYTE_FALLBACK.encode("cd").ids
    seen: list[int] = []

    def decode(window: Sequence[int]) -> str:
        seen.append(len(window))
        return BYTE_FALLBACK.decode(list(window))

    detokenizer = Detokenizer(decode)
    assert "".join(detokenizer.push([token]) for token in tokens) == "ab cd"
    assert max(seen) < 30


def cutting_characters() -> Tokenizer:
    """As tokenizers of bytes have it for Hindi: tokens end inside the character that the next one ends."""
    words = ["a", "Ġà¤", "à¥įà¤", "ķ", "ðŁĳ", "ĭà¤", "¤", "à"]
    tokenizer = Tokenizer(BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


CUTTING = cutting_characters()


def test_an_answer_whose_every_token_ends_inside_a_character_is_not_decoded_again_from_its_start() -> None:
    seen: list[int] = []

    def decode(window: Sequence[int]) -> str:
        seen.append(len(window))
        return CUTTING.decode(list(window))

    detokenizer = Detokenizer(decode)
    shown = "".join(detokenizer.push([1]) for _ in range(200))
    assert shown + detokenizer.finish() == " \ufffd" * 199 + " "
    assert max(seen) < 10


@given(st.lists(st.integers(0, 7), max_size=8), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_tokens_that_end_inside_characters_make_the_text_of_all(tokens: list[int], sizes: list[int]) -> None:
    plain = PlainTokens(CUTTING.decode, 0)
    detokenizer = Detokenizer(lambda window: CUTTING.decode(list(window)), plain)
    pieces = [detokenizer.push(group) for group in grouped([0, *tokens, 0], sizes)]
    assert "".join(pieces) + detokenizer.finish() == CUTTING.decode([0, *tokens, 0])


def test_a_character_of_several_tokens_is_shown_when_it_is_whole() -> None:
    tokens = TOKENIZER.encode("👋")
    assert len(tokens) > 1
    detokenizer = Detokenizer(TOKENIZER.decode)
    assert [detokenizer.push([token]) for token in tokens] == [""] * (len(tokens) - 1) + ["👋"]


def test_a_character_cut_by_the_token_limit_is_dropped() -> None:
    tokens = TOKENIZER.encode("Hi 👋")[:-1]
    detokenizer = Detokenizer(TOKENIZER.decode)
    assert detokenizer.push(tokens) + detokenizer.finish() == "Hi "


def test_an_output_without_tokens_changes_nothing() -> None:
    tokens = TOKENIZER.encode("Hi 👋")
    detokenizer = Detokenizer(TOKENIZER.decode)
    assert detokenizer.push(tokens[:-1]) + detokenizer.push(()) + detokenizer.push(tokens[-1:]) == "Hi 👋"


def test_bytes_that_are_no_text_do_not_hold_the_stream_for_ever() -> None:
    broken = TOKENIZER.encode("👋")[0]
    detokenizer = Detokenizer(TOKENIZER.decode)
    shown = "".join(detokenizer.push([broken]) for _ in range(40))
    assert len(shown) > 10


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "found"),
    [
        (["one two", " three"], [], "one two three", False),
        (["one ST", "OP two"], ["STOP"], "one ", True),
        (["one S", "T", "O", "x"], ["STOP"], "one STOx", False),
        (["a\n", "\nb"], ["\n\n"], "a", True),
        (["abcab", "d"], ["abd"], "abc", True),
        (["later early later"], ["early", "er e"], "lat", True),
        (["ends with ST"], ["STOP"], "ends with ST", False),
    ],
)
def test_stop_strings_are_never_shown_and_nothing_else_is_lost(
    pieces: list[str], stops: list[str], shown: str, found: bool
) -> None:
    checker = StopStrings(stops)
    text = "".join(checker.push(piece) for piece in pieces) + checker.finish()
    assert (text, checker.found is not None) == (shown, found)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_stop_strings_give_the_same_text_for_every_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    checker = StopStrings(stops)
    shown = "".join(checker.push(piece) for piece in pieces) + checker.finish()
    assert not any(stop in shown for stop in stops)
    assert text.startswith(shown)
    assert (checker.found is not None) == any(stop in text for stop in stops)


def test_a_stop_string_across_tokens_ends_the_stream() -> None:
    stream = TextStream(TOKENIZER.decode, ["batch"])
    shown = ""
    for token in TOKENIZER.encode("the running batch at every step"):
        text, taken = stream.push([token])
        shown += text
        assert taken == 1
        if stream.stopped:
            break
    assert stream.stopped
    assert shown == "the running "


@given(
    st.text("ab ", max_size=30),
    st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 6), max_size=30),
)
def test_where_an_answer_ends_and_what_it_costs_does_not_depend_on_how_its_tokens_arrive(
    text: str, stops: list[str], groups: list[int]
) -> None:
    tokens = ByteTokenizer().encode(text)
    one_by_one = taken_of(stops, [[token] for token in tokens])
    grouped, rest = [], list(tokens)
    for size in groups:
        grouped.append(rest[:size])
        rest = rest[size:]
    assert taken_of(stops, [*grouped, rest]) == one_by_one


def taken_of(stops: list[str], outputs: list[list[int]]) -> tuple[str, int]:
    """Text and number of tokens of an answer whose tokens arrive in these groups."""
    stream = TextStream(ByteTokenizer().decode, stops)
    shown, count = "", 0
    for output in outputs:
        text, taken = stream.push(output)
        shown, count = shown + text, count + taken
        if stream.stopped:
            return shown, count
    return shown + stream.finish(), count


def test_the_package_data_stays_small() -> None:
    folder: Path = resolve_model("embedded://demo")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 12 * 10**6
