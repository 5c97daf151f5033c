"""docs/concepts/gateway.md: engines answer `GET /load` in any form of HTTP/1.1, and whatever they send has a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.load_answer import (
    MOST_BODY,
    MOST_HEAD,
    MOST_PIECES,
    Answer,
    read_answer,
)
from llmendpoint_gateway.errors import BadAnswer

SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b'3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\n\r\n'
UNTIL_CLOSED = b"HTTP/1.1 200\r\n\r\n" + b'{"a":1}'


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (SIZED, Answer(200, b'{"a":1}', True)),
        (CHUNKED, Answer(200, b'{"a":1}', True)),
        (SIZED.replace(b"1.1", b"1.0"), Answer(200, b'{"a":1}', False)),
        (SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), Answer(200, b'{"a":1}', False)),
        (SIZED.replace(b"200 OK", b"404 Not Found"), Answer(404, b'{"a":1}', True)),
        (SIZED + b"more", Answer(200, b'{"a":1}', False)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", True)),
    ],
)
def test_an_answer_is_read_as_soon_as_it_is_whole(data: bytes, answer: Answer) -> None:
    assert read_answer(data) == answer


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    assert read_answer(UNTIL_CLOSED) is None
    assert read_answer(UNTIL_CLOSED, ended=True) == Answer(200, b'{"a":1}', False)


@given(st.sampled_from([SIZED, CHUNKED]), st.data())
def test_a_part_of_an_answer_is_none_yet_and_one_that_ends_there_is_bad(
    whole: bytes, data: st.DataObject
) -> None:
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_answer(part) is None
    with pytest.raises(BadAnswer):
        read_answer(part, ended=True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"x" * (MOST_HEAD + 1),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (MOST_PIECES + 1),
    ],
)
def test_what_is_no_answer_is_found_out_before_its_end(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_answer(data)


def test_a_body_above_the_bound_is_an_answer_without_a_load() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n"
    assert read_answer(head + b"x" * MOST_BODY) is None
    assert read_answer(head + b"x" * (2 * MOST_BODY + 1)) == Answer(200, b"", False)
    large = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (MOST_BODY + 1) + b"x" * (MOST_BODY + 1)
    assert read_answer(large) == Answer(200, b"", False)


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda tail: SIZED[:40] + tail), st.booleans())
def test_whatever_comes_is_an_answer_or_bad_or_not_whole(data: bytes, ended: bool) -> None:
    try:
        assert read_answer(data, ended=ended) is not None or not ended
    except BadAnswer:
        pass
