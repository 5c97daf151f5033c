"""docs/concepts/gateway.md: a caller is the address that a request comes from, which its sender cannot choose."""

import pytest

from llmendpoint_gateway.core.identity.caller import caller_of


@pytest.mark.parametrize(
    ("one", "other", "hops"),
    [
        (b"10.0.0.1", b" 10.0.0.1", 0),
        (b"1.2.3.4, 10.0.0.1", b"5.6.7.8,10.0.0.1", 0),  # what a client wrote before Envoy did
        (b"10.0.0.1:55555", b"10.0.0.1", 0),
        (b"::ffff:10.0.0.1", b"10.0.0.1", 0),
        (b"2001:db8::1", b"2001:db8::ffff:2", 0),  # one machine has the whole /64
        (b"[2001:db8::1]:443", b"2001:db8::9", 0),
        (b"9.9.9.9, 10.0.0.1, 10.9.9.9", b"10.0.0.1, 10.9.9.8", 1),
        (b"10.0.0.1", b"1.1.1.1,10.0.0.1,10.9.9.9", 1),
    ],
)
def test_one_caller_is_one_whatever_it_sends(one: bytes, other: bytes, hops: int) -> None:
    assert caller_of(one, hops) == caller_of(other, hops)


@pytest.mark.parametrize(
    ("one", "other", "hops"),
    [
        (b"10.0.0.1", b"10.0.0.2", 0),
        (b"10.0.0.1, 10.0.0.2", b"10.0.0.2, 10.0.0.1", 0),
        (b"2001:db8:0:1::1", b"2001:db8:0:2::1", 0),
        (b"10.0.0.1, 10.9.9.9", b"10.0.0.2, 10.9.9.9", 1),
    ],
)
def test_two_addresses_are_two_callers(one: bytes, other: bytes, hops: int) -> None:
    assert caller_of(one, hops) != caller_of(other, hops)


@pytest.mark.parametrize(
    "text", [b"", b",", b":::::", b"[", b"\xff\xff", b"a:b:c", b"," * 100, b"%%:%:%", b"x" * 60_000]
)
def test_nonsense_is_a_caller_too(text: bytes) -> None:
    for hops in range(3):
        assert 0 <= caller_of(text, hops) < 1 << 64
