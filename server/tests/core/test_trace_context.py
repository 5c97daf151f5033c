"""docs/operate/traces.md: W3C trace context is read as its specification says, and a share of the traces is chosen by their ids."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core.trace_context import Parent, chosen, read_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
KNOWN = Parent(int(TRACE, 16), int(SPAN, 16), True)


@pytest.mark.parametrize(
    ("header", "parent"),
    [
        (f"00-{TRACE}-{SPAN}-01", KNOWN),
        (f" 00-{TRACE}-{SPAN}-03 ", KNOWN),
        (f"00-{TRACE}-{SPAN}-00", Parent(KNOWN.trace_id, KNOWN.span_id, False)),
        (f"01-{TRACE}-{SPAN}-01-more", KNOWN),  # a later version may have more fields
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        ("", None),
        (f"01-{TRACE}-{SPAN}-01-{'x' * 300}", None),
    ],
)
def test_a_header_is_read_or_ignored(header: str, parent: Parent | None) -> None:
    assert read_traceparent(header) == parent


@given(st.text(max_size=300))
def test_no_header_raises(header: str) -> None:
    read_traceparent(header)


def test_the_share_that_is_chosen_is_the_one_that_is_asked_for() -> None:
    ids = [random.Random(seed).getrandbits(128) for seed in range(4000)]
    assert [sum(chosen(one, ratio) for one in ids) for ratio in (0.0, 1.0)] == [0, 4000]
    assert sum(chosen(one, 0.25) for one in ids) == pytest.approx(1000, abs=120)
    assert all(chosen(one, 0.5) for one in ids if chosen(one, 0.25))
