"""An HTTP/1.1 answer to `GET /load`, as far as a load needs it: bytes in, status and body out.

Engines are not trusted: every part has a bound.
"""

import re
from typing import NamedTuple

from llmendpoint_gateway.errors import BadAnswer

MOST_HEAD = MOST_BODY = 1 << 14
"""Bytes. A larger body counts as an answer that is no load."""
MOST_PIECES = 64
"""Of a chunked body. What comes is read from its beginning with each packet, so packets have the same bound."""

_STATUS = re.compile(rb"http/1\.([01]) ([2-5][0-9][0-9])(?: [^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n")
_CHUNK = re.compile(rb"([0-9a-f]{1,6})[ \t]*(?:;[^\r\n]*)?\r\n", re.IGNORECASE)


class Answer(NamedTuple):
    """`kept`: the connection can take another request."""

    status: int
    body: bytes
    kept: bool


def read_answer(data: bytes, *, ended: bool = False) -> Answer | None:
    """None: it is not whole yet. `ended`: nothing more will come. Raises BadAnswer if it can never be whole."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if ended or len(data) > MOST_HEAD:
            raise BadAnswer("no end of its headers")
        return None
    head, rest = data[: end + 2].lower(), data[end + 4 :]
    match = _STATUS.match(head)
    if match is None:
        raise BadAnswer("not HTTP/1.1")
    status, lasts = int(match[2]), match[1] == b"1" and b"\r\nconnection: close\r\n" not in head
    body, after = _body(status, head, rest, ended)
    if body is not None and len(body) <= MOST_BODY:
        return Answer(status, body, lasts and not after)
    if body is not None or len(rest) > 2 * MOST_BODY:
        return Answer(status, b"", False)
    if ended:
        raise BadAnswer("it ended too soon")
    return None


def _body(status: int, head: bytes, rest: bytes, ended: bool) -> tuple[bytes | None, bool]:
    """The body, None if it is not whole, and whether anything comes after it that makes the connection unfit."""
    if status in (204, 304):
        return b"", bool(rest)
    if b"\r\ntransfer-encoding:" in head:
        return _chunks(rest)
    if length := _LENGTH.search(head):
        size = int(length[1])
        return (rest[:size] if len(rest) >= size else None), len(rest) > size
    return (rest if ended else None), True


def _chunks(rest: bytes) -> tuple[bytes | None, bool]:
    pieces: list[bytes] = []
    place = 0
    for _ in range(MOST_PIECES):
        size = _CHUNK.match(rest, place)
        if size is None:
            return None, False
        length = int(size[1], 16)
        if length == 0:
            # Trailers are not read: such a connection is not used again.
            tail = rest[size.end() :]
            return (b"".join(pieces) if len(tail) >= 2 else None), tail != b"\r\n"
        place = size.end() + length + 2
        if len(rest) < place:
            return None, False
        pieces.append(rest[size.end() : place - 2])
    raise BadAnswer(f"more than {MOST_PIECES} chunks")
