"""docs/api.md: what is found in an answer, and counted of it, does not depend on how its tokens arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.api.deltas import Content, Delta, Reasoning
from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.read_text import ReadText
from llmendpoint_server.api.tools.reasoning import THINK, PlainReader, ReasoningReader

WORDS = ("<think>", "Let", " me", "\n", " see", "</think>", "It", " is", " 4", ".", "<", "STOP")
"""Token n is word n."""


def read(
    groups: list[list[int]], *, by_token: bool, inside: bool
) -> tuple[list[Delta], tuple[int, ...], ReadText]:
    text = TextStream(lambda ids: "".join(WORDS[one] for one in ids), ("STOP",))
    answer = ReadText(text, ReasoningReader(THINK, PlainReader(), inside=inside), by_token=by_token)
    for group in groups:
        if not answer.stopped:
            answer.push(group)
    if not answer.stopped:
        answer.finish()
    answer.close()
    found, decided = answer.take()
    assert found is not None
    return found, decided, answer


def joined(found: list[Delta], kind: type[Content] | type[Reasoning]) -> str:
    return "".join(delta.text for delta in found if isinstance(delta, kind))


@given(st.lists(st.lists(st.integers(0, len(WORDS) - 1), max_size=5)), st.booleans())
def test_groups_of_tokens_are_read_as_single_ones_are(groups: list[list[int]], inside: bool) -> None:
    single = [[token] for group in groups for token in group]
    found, decided, answer = read(groups, by_token=True, inside=inside)
    assert (found, decided) == read(single, by_token=True, inside=inside)[:2]
    for by_token in (False, True):
        other, _, one = read(single, by_token=by_token, inside=inside)
        assert one.thoughts == answer.thoughts
        for kind in (Content, Reasoning):
            assert joined(other, kind) == joined(found, kind)
    assert list(decided) == sorted(decided)


@pytest.mark.parametrize(
    ("words", "thoughts"),
    [
        (("It", " is"), 0),
        (("<think>", "Let", " me", "</think>", "It", " is"), 3),
        (("<think>", "Let", " me"), 3),
        (("<think>", "</think>", "It"), 0),
        (("<think>", "Let", "STOP", "It"), 2),
    ],
)
def test_tokens_to_the_end_of_the_reasoning_are_counted(words: tuple[str, ...], thoughts: int) -> None:
    tokens = [WORDS.index(word) for word in words]
    assert read([tokens], by_token=False, inside=False)[2].thoughts == thoughts
