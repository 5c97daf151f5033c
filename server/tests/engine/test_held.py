"""docs/concepts/structured-output.md: a request waits for its grammar outside of the scheduler, and no step waits for it."""

from __future__ import annotations

import time

import pytest

from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.engine.held import Held
from llmendpoint_server.engine.sampling.masks import Masks
from llmendpoint_server.guidance import make_tokenizer
from llmendpoint_server.weights.locate import resolve_model

DEMO = resolve_model("embedded://demo")


@pytest.fixture
def masks() -> Masks:
    return Masks(lambda: make_tokenizer(DEMO, 1761, (0, 2)), 1, 1761)


def request(name: str, regex: str | None, n: int = 1) -> Request:
    grammar = None if regex is None else Grammar("regex", regex)
    return Request(name, (1,), SamplingParams(5, grammar=grammar), n=n)


def wait(held: Held) -> list[tuple[Request, set[int]]]:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := held.ready():
            return found
        time.sleep(0.001)
    raise AssertionError("nothing is ready")


def test_a_request_is_held_until_its_grammar_is_compiled_or_cannot_be(masks: Masks) -> None:
    held = Held(masks, 8)
    for regex in ("a{3}", "(a"):
        asked = request(regex, regex)
        assert held.takes(asked)
        assert held.hold(asked) == []
        assert len(held) == 1
        assert wait(held) == [(asked, set())]
        assert not held
    assert not held.takes(request("again", "a{3}")), "it is compiled"
    assert not held.takes(request("free", None))


def test_a_held_request_can_be_aborted_and_more_than_the_bound_are_refused(masks: Masks) -> None:
    held = Held(masks, 1)
    assert held.hold(request("one", "b{3}", n=2)) == []
    refused = held.hold(request("two", "c{3}"))
    assert [end.finish for end in refused] == [FinishReason.REJECTED]
    assert [(end.finish, end.index) for end in held.abort("one")] == [
        (FinishReason.ABORTED, 0), (FinishReason.ABORTED, 1),
    ]  # fmt: skip
    assert held.abort("one") == []
    assert not held


def test_answers_of_a_held_request_can_be_aborted_one_by_one(masks: Masks) -> None:
    held = Held(masks, 8)
    asked = request("two", "d{3}", n=2)
    assert held.hold(asked) == []
    assert held.abort("two", 1) == []
    assert wait(held) == [(asked, {1})]
    assert held.hold(request("all", "e{3}", n=2)) == []
    assert held.abort("all", 0) == []
    assert len(held.abort("all", 1)) == 2
    assert not held
