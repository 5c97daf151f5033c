"""docs/concepts/gateway.md, "Where the prefix lies": prompts that begin with the same bytes share the links of their chains up to there."""

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.core.request.paths import ByModel, ByPath
from llmendpoint_gateway.core.request.prompt import BLOCKS, EXPECTED_OUTPUT, LAST_BYTES, Prompt, make_chain
from llmendpoint_gateway.core.request.request import Head, Request, has_prompt


def prompt_of(**fields: Any) -> Prompt:
    found = scan(json.dumps({"model": "chat", **fields}).encode(), prompted=True).prompt
    assert found is not None
    return found


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Bytes of the longest link that both have."""
    same = [n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a == b]
    assert same == list(range(len(same)))  # a chain: after the first difference nothing is equal
    return BLOCKS[len(same) - 1] if same else 0


def test_blocks_grow_from_256_bytes_to_4_mib_in_at_most_64_steps() -> None:
    assert (BLOCKS[0], BLOCKS[-1]) == (256, 4 << 20)
    assert len(BLOCKS) <= 64
    assert all(1.3 < after / before < 1.5 for before, after in itertools.pairwise(BLOCKS))


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(0, 40_000), st.booleans())
def test_two_chains_are_equal_up_to_the_last_block_that_their_texts_share(
    same: int, one: int, other: int, viewed: bool
) -> None:
    first, second = b"s" * same + b"a" * one, b"s" * same + b"b" * other
    chains = make_chain(first, 1), make_chain(memoryview(second) if viewed else second, 1)
    common = same + (min(one, other) if not (one and other) else 0)
    common = min(common, len(first), len(second))
    assert shared(*chains) == max((block for block in BLOCKS if block <= common), default=0)
    assert [len(chain) for chain in chains] == [
        sum(block <= len(t) for block in BLOCKS) for t in (first, second)
    ]


def test_what_follows_the_last_block_changes_nothing() -> None:
    text = b"x" * (LAST_BYTES + 1)
    assert make_chain(text, 0) == make_chain(text + b"y", 0)


@pytest.mark.parametrize("size", [2_000, 200_000])
def test_a_longer_conversation_continues_the_chain_wherever_its_messages_are_in_the_body(size: int) -> None:
    system = {"role": "system", "content": "s" * size}
    before = prompt_of(messages=[system, {"role": "user", "content": "one"}], temperature=0)
    after = prompt_of(stream=True, top_p=1, messages=[system, {"role": "user", "content": "two, and more"}])
    assert shared(before.chain, after.chain) >= size * 0.7
    assert before.size == pytest.approx(size, abs=100)


def test_all_that_a_template_puts_before_the_messages_counts_and_nothing_else_does() -> None:
    messages = [{"role": "user", "content": "m" * 3000}]
    plain = prompt_of(messages=messages)
    assert prompt_of(messages=messages, temperature=0.5, seed=3).chain == plain.chain
    for fields in ({"tools": [{"type": "function"}]}, {"system": "be brief"}, {"cache_salt": "mine"}):
        assert shared(prompt_of(messages=messages, **fields).chain, plain.chain) == 0
    for name in ("prompt", "input"):
        assert len(prompt_of(**{name: "m" * 3000}).chain) == len(plain.chain)
    long = {"system": "s" * 3000}
    one, other = prompt_of(messages=messages, **long), prompt_of(messages=[], **long)
    assert shared(one.chain, other.chain) > 2000


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, EXPECTED_OUTPUT),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7}, 7),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": 100_000}, EXPECTED_OUTPUT),
        ({"max_tokens": 10**4000}, EXPECTED_OUTPUT),
        ({"max_tokens": -1}, EXPECTED_OUTPUT),
        ({"max_tokens": "7"}, EXPECTED_OUTPUT),
        ({"max_tokens": 7.5}, EXPECTED_OUTPUT),
        ({"max_tokens": None}, EXPECTED_OUTPUT),
        ({"max_tokens": {"a": 1}}, EXPECTED_OUTPUT),
    ],
    ids=range(11),
)
def test_the_length_of_an_answer_is_taken_from_its_limit_or_else_assumed(
    fields: dict[str, Any], output: int
) -> None:
    assert prompt_of(**fields).output == output


def test_a_session_is_what_the_body_or_better_the_header_names() -> None:
    assert prompt_of().session == prompt_of(user=None).session == prompt_of(user={"a": 1}).session == 0
    assert prompt_of(user="ada").session == prompt_of(prompt_cache_key="ada", user="bob").session != 0
    body = scan(b'{"model": "chat", "user": "ada"}', prompted=True)
    asked = Head("POST", "/v1/chat/completions", ByModel(), 0, session=5)
    assert [p.session for p in (Request(asked, body).prompt,) if p] == [5]
    assert prompt_of(user="x" * 100_000).session == prompt_of(user="x" * 90_000).session


@given(st.binary(max_size=200))
def test_no_body_raises(body: bytes) -> None:
    for whole in (body, b'{"messages":' + body, b'{"max_tokens":' + body + b"}"):
        assert scan(whole, prompted=True).model == scan(whole).model


def test_only_paths_that_generate_have_a_prompt() -> None:
    def asked(path: str) -> bool:
        return has_prompt(Head("POST", path, ByModel(), 0))

    assert asked("/v1/chat/completions")
    assert asked("/v1/messages?beta=true")
    assert not asked("/v1/embeddings")
    assert not asked("/v1/messages/count_tokens")
    assert has_prompt(
        Head("POST", "/team/chat/v1/completions", ByPath("team/chat", "/v1/completions?a=1"), 0)
    )


def test_a_chain_over_4_mib_takes_a_few_milliseconds() -> None:
    view = memoryview(bytes(LAST_BYTES))
    taken = []
    for _ in range(5):
        start = time.process_time()
        make_chain(view, 0)
        taken.append(time.process_time() - start)
    print(f"{min(taken) * 1e3:.1f} ms")
    assert min(taken) < 0.02  # 3 ms on a machine that does nothing else
