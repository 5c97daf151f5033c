"""Server-sent events of a streamed response: cut out of the bytes as they come, and those that name the response rewritten.

All other events pass as the engine sent them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from llmendpoint_batch.core.bounds import ANSWER_BYTES
from llmendpoint_batch.core.response_object import Final, Stored, final_of, ours, shown_response
from llmendpoint_batch.core.response_request import Fields

LIFECYCLE = frozenset({b"response.created", b"response.queued", b"response.in_progress"})
ENDS = frozenset({b"response.completed", b"response.incomplete", b"response.failed"})
FIRST_EVENTS = 2
"""Of a streamed background response: it is there, and it waits. The service makes them before an endpoint has seen it."""
OWN = frozenset({b"response.created", b"response.queued"})
_FIELDS = msgspec.json.Decoder(Fields)


class TooLong(Exception):
    """One event is longer than ANSWER_BYTES."""


@dataclass(frozen=True, slots=True)
class Event:
    """`text`: with its empty line. `final`: of the event that ends the response."""

    text: bytes
    final: Final | None = None


class Events:
    """`stored`: whose stream it is; None: the caller wants nothing stored, and every event passes as it is."""

    def __init__(self, stored: Stored | None) -> None:
        self._stored = stored
        self._rest, self._looked = bytearray(), 0

    def take(self, data: bytes) -> Iterator[Event]:
        if self._stored is None:
            yield Event(data)
            return
        self._rest += data
        while (end := self._end()) > 0:
            text = bytes(self._rest[:end])
            del self._rest[:end]
            self._looked = 0
            yield self._event(self._stored, text)
        if len(self._rest) > ANSWER_BYTES:
            raise TooLong

    def _end(self) -> int:
        """Where the first event ends; 0: it is not whole."""
        begin = max(0, self._looked - 3)
        ends = [
            at + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if (at := self._rest.find(mark, begin)) >= 0
        ]
        self._looked = len(self._rest)
        return min(ends, default=0)

    def _event(self, stored: Stored, text: bytes) -> Event:
        name, data = _read(text)
        if name not in LIFECYCLE and name not in ENDS:
            return Event(text)
        try:
            data.decode()
            fields = _FIELDS.decode(data)
            response = bytes(fields["response"])
            whole = {**fields, "response": msgspec.Raw(ours(stored, response))}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            return Event(text)
        final = final_of(stored, response) if name in ENDS else None
        return Event(_encoded(name, whole), final)


def first_events(stored: Stored) -> bytes:
    """What the caller of a streamed background response gets at once, its id in it."""
    response = {"response": msgspec.Raw(shown_response(stored))}
    return b"".join(
        event_of(f"response.{what}", at, response) for at, what in enumerate(("created", "queued"))
    )


def numbered(text: bytes, number: int) -> bytes:
    """An event of the endpoint as one of a streamed background response. Empty: it is none of these."""
    name, data = _read(text)
    try:
        data.decode()
        fields: dict[str, Any] = dict(_FIELDS.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return b"" if name in OWN else _encoded(name, {**fields, "sequence_number": number})


def behind(data: bytes, count: int) -> bytes:
    """Events without the first `count`. Each of them was made here."""
    at = 0
    for _ in range(count):
        at = data.index(b"\n\n", at) + 2
    return data[at:]


def _read(text: bytes) -> tuple[bytes, bytes]:
    """Name and data."""
    lines = text.splitlines()
    name = next((line[6:].strip() for line in lines if line.startswith(b"event:")), b"")
    return name, b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


def event_of(name: str, number: int, fields: dict[str, Any]) -> bytes:
    return _encoded(name.encode(), {"type": name, "sequence_number": number, **fields})


def _encoded(name: bytes, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, msgspec.json.encode(data))
