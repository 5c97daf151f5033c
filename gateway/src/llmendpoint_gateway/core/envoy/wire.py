"""The server half of gRPC streams over HTTP/2 (RFC 9113), as far as Envoy's ext_proc client needs it: bytes in, bytes
out.

A decision takes microseconds; grpc.aio needs hundreds of them to handle its stream. All streams of this socket call one
method. So request headers are never read or decompressed, and all replies carry the same few header bytes. Messages are
whole and uncompressed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Protocol

from llmendpoint_gateway.core.envoy.turns import Turns
from llmendpoint_gateway.errors import WireError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = Struct(">IBI")
"""A frame's header: its length (24 bits) and kind, its flags, its stream."""
MESSAGE = Struct(">BI")
"""A message's header: whether it is compressed, and its length."""
MAX_FRAME = 16_384  # the smallest maximum in HTTP/2, and its default
MAX_MESSAGE = 64 << 20
WIDEST_WINDOW = 2**31 - 1
FIRST_WINDOW = 65_535
STREAM_WINDOW = 256 << 10  # what a stream may send at any time; a larger message waits for its turn
REFILL = 1 << 28  # received bytes after which the connection's window is opened again

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED = 0x4, 0x8
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 0x3, 0x4

# HPACK: `:status: 200` is entry 8 of the static table, `content-type` entry 31. The literals enter no table.
RESPONSE = b"\x88\x0f\x10\x10application/grpc"
TRAILERS = b"\x00\x0bgrpc-status\x010"


class Handler(Protocol):
    """What is done with the streams. Its methods must not raise."""

    def message(self, stream: "Stream", message: bytes) -> None:
        """A whole message arrived."""

    def ended(self, stream: "Stream") -> None:
        """The stream has ended, for any reason. Nothing can be sent on it any more."""


@dataclass(slots=True, eq=False)
class Stream:
    """One call. `state` belongs to the handler. `credit`: bytes that the peer may send on it. `asked`: it asked for a
    turn."""

    id: int
    connection: "Connection"
    window: int
    state: Any = None
    replied: bool = False
    received: bytearray = field(default_factory=bytearray)
    credit: int = STREAM_WINDOW
    asked: bool = False

    def send(self, message: bytes) -> None:
        """Reply with a message. After the stream has ended, the message is dropped."""
        self.connection.send(self, message)


class Connection:
    """One of Envoy's connections. Pass received bytes to `receive`, then write what `take_output` returns. `wake` is
    called if output appears at another time, because a reply was late."""

    def __init__(
        self, handler: Handler, wake: Callable[[], None] = lambda: None, turns: Turns | None = None
    ) -> None:
        self._turns = turns or Turns()
        self._handler = handler
        self._wake = wake
        self._receiving = False
        self._input = b""
        self._greeted = False
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._headers_of: int | None = None  # no other frame may come before its last CONTINUATION
        self._headers_end_stream = False
        self._window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._unacknowledged = 0
        self._waiting: deque[tuple[Stream, bytes]] = deque()
        settings = _setting(MAX_CONCURRENT_STREAMS, WIDEST_WINDOW) + _setting(
            INITIAL_WINDOW_SIZE, STREAM_WINDOW
        )
        self._output = [
            _frame(SETTINGS, 0, 0, settings),
            _frame(WINDOW_UPDATE, 0, 0, (WIDEST_WINDOW - FIRST_WINDOW).to_bytes(4, "big")),
        ]

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def take_output(self) -> bytes:
        """Everything to be written now; it is returned once."""
        output, self._output = b"".join(self._output), []
        return output

    def receive(self, data: bytes) -> None:
        """Process received bytes. Raises WireError if the peer breaks the protocol; the connection is then unusable."""
        self._receiving = True
        try:
            self._receive(data)
        finally:
            self._receiving = False

    def _receive(self, data: bytes) -> None:
        data = self._input + data
        position = 0
        if not self._greeted:
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._input = data
                return
            if not data.startswith(PREFACE):
                raise WireError("the connection does not begin as HTTP/2 with prior knowledge does")
            self._greeted, position = True, len(PREFACE)
        total = len(data)
        while total - position >= FRAME.size:
            length_and_kind, flags, stream = FRAME.unpack_from(data, position)
            length = length_and_kind >> 8
            if length > MAX_FRAME:
                raise WireError(f"a frame of {length} bytes; the most is {MAX_FRAME}")
            start = position + FRAME.size
            if total < start + length:
                break
            position = start + length
            self._frame(length_and_kind & 0xFF, flags, stream & WIDEST_WINDOW, data[start:position])
        self._input = data[position:]

    def close(self) -> None:
        """The connection is closed: end every stream."""
        streams, self._streams = list(self._streams.values()), {}
        self._waiting.clear()
        for stream in streams:
            if stream.asked:
                self._turns.done(stream)
            self._handler.ended(stream)

    def send(self, stream: Stream, message: bytes) -> None:
        """See `Stream.send`."""
        if self._streams.get(stream.id) is not stream:
            return
        if not stream.replied:
            stream.replied = True
            self._output.append(_frame(HEADERS, END_HEADERS, stream.id, RESPONSE))
        data = MESSAGE.pack(0, len(message)) + message
        if self._waiting or len(data) > min(stream.window, self._window, MAX_FRAME):
            self._waiting.append((stream, data))
            self._send_waiting()
        else:
            self._send_data(stream, data)
        if not self._receiving:
            self._wake()

    def _send_data(self, stream: Stream, data: bytes) -> None:
        self._output.append(_frame(DATA, 0, stream.id, data))
        stream.window -= len(data)
        self._window -= len(data)

    def _send_waiting(self) -> None:
        """Send what the windows allow. A stream whose own window is full does not block the others."""
        shut: set[Stream] = set()
        for _ in range(len(self._waiting)):
            stream, data = self._waiting.popleft()
            while data and stream not in shut:
                size = min(len(data), MAX_FRAME, stream.window, self._window)
                if size <= 0:
                    shut.add(stream)
                    break
                self._send_data(stream, data[:size])
                data = data[size:]
            if data:
                self._waiting.append((stream, data))

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._headers_of is not None and (kind != CONTINUATION or number != self._headers_of):
            raise WireError("a header block was cut off by another frame")
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind == HEADERS:
            self._open(flags, number)
        elif kind == CONTINUATION:
            self._continue(flags)
        elif kind == RST_STREAM:
            self._end(number)
        elif kind == WINDOW_UPDATE:
            self._widen(number, int.from_bytes(payload, "big") & WIDEST_WINDOW)
        elif kind == SETTINGS:
            if not flags & ACK:
                self._settings(payload)
        elif kind == PING:
            if not flags & ACK:
                self._output.append(_frame(PING, ACK, 0, payload))
        elif kind == PUSH_PROMISE:
            raise WireError("a client may not push")

    def _open(self, flags: int, number: int) -> None:
        """HEADERS: a new stream, or the trailers of one."""
        if number % 2 == 0:
            raise WireError(f"stream {number} is not a client's")
        if number not in self._streams:
            if number <= self._last:
                raise WireError(f"stream {number} was used before")
            self._last = number
            self._streams[number] = Stream(number, self, self._first_window)
        self._headers_of, self._headers_end_stream = number, bool(flags & END_STREAM)
        self._continue(flags)

    def _continue(self, flags: int) -> None:
        if self._headers_of is None:
            raise WireError("a continuation of no header block")
        if not flags & END_HEADERS:
            return
        number, self._headers_of = self._headers_of, None
        if self._headers_end_stream:
            self._half_closed(number)

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        self._unacknowledged += len(payload)
        if self._unacknowledged >= REFILL:
            self._output.append(_frame(WINDOW_UPDATE, 0, 0, self._unacknowledged.to_bytes(4, "big")))
            self._unacknowledged = 0
        if number > self._last or number % 2 == 0:
            raise WireError(f"data on stream {number}, which was never opened")
        stream = self._streams.get(number)
        if stream is None:
            return  # the stream ended here while this frame was in transit
        stream.credit -= len(payload)
        if stream.credit < 0:
            raise WireError(f"more on stream {number} than its window holds")
        if flags & PADDED:
            if not payload or payload[0] >= len(payload):
                raise WireError("more padding than payload")
            payload = payload[1 : len(payload) - payload[0]]
        self._messages(stream, payload)
        if flags & END_STREAM:
            self._half_closed(number)

    def _messages(self, stream: Stream, payload: bytes) -> None:
        if (
            not stream.received
            and len(payload) >= 5
            and int.from_bytes(payload[1:5], "big") == len(payload) - 5
        ):
            self._message(stream, payload[0], payload[5:])  # the usual case: one frame, one message
            self._refill(stream, STREAM_WINDOW // 2)
            return
        received = stream.received
        received += payload
        while len(received) >= 5:
            size = int.from_bytes(received[1:5], "big")
            if size > MAX_MESSAGE:
                raise WireError(f"a message of {size} bytes; the most is {MAX_MESSAGE}")
            if len(received) < 5 + size:
                self._refill(stream, 5 + size - len(received))
                return
            compressed, message = received[0], bytes(received[5 : 5 + size])
            del received[: 5 + size]
            if stream.asked:
                stream.asked = False
                self._turns.done(stream)
            self._message(stream, compressed, message)
        self._refill(stream, STREAM_WINDOW // 2)

    def _refill(self, stream: Stream, missing: int) -> None:
        """Let the peer send `missing` bytes, which complete a message. A large message waits for its turn."""
        if missing <= stream.credit or stream.asked or self._streams.get(stream.id) is not stream:
            return
        if missing <= STREAM_WINDOW // 2:
            self._give(stream, STREAM_WINDOW - stream.credit)
            return
        stream.asked = True
        self._turns.ask(stream, missing, lambda: self._give(stream, missing - stream.credit + STREAM_WINDOW))

    def _give(self, stream: Stream, size: int) -> None:
        stream.credit += size
        self._output.append(_frame(WINDOW_UPDATE, 0, stream.id, size.to_bytes(4, "big")))
        if not self._receiving:
            self._wake()

    def _message(self, stream: Stream, compressed: int, message: bytes) -> None:
        if compressed:
            raise WireError("a compressed message; none was asked for")
        if self._streams.get(stream.id) is stream:
            self._handler.message(stream, message)

    def _half_closed(self, number: int) -> None:
        """The client has finished its half, so the server ends the stream."""
        stream = self._streams.get(number)
        if stream is None:
            return
        start = b"" if stream.replied else RESPONSE
        self._output.append(_frame(HEADERS, END_HEADERS | END_STREAM, number, start + TRAILERS))
        self._end(number)

    def _end(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if self._waiting:
            self._waiting = deque(item for item in self._waiting if item[0] is not stream)
        if stream.asked:
            self._turns.done(stream)
        self._handler.ended(stream)

    def _widen(self, number: int, by: int) -> None:
        if number == 0:
            self._window += by
        elif number in self._streams:
            self._streams[number].window += by
        if self._waiting:
            self._send_waiting()

    def _settings(self, payload: bytes) -> None:
        if len(payload) % 6:
            raise WireError(f"settings of {len(payload)} bytes, which is no multiple of 6")
        for at in range(0, len(payload), 6):
            name, value = (
                int.from_bytes(payload[at : at + 2], "big"),
                int.from_bytes(payload[at + 2 : at + 6], "big"),
            )
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
        self._output.append(_frame(SETTINGS, ACK, 0, b""))
        if self._waiting:
            self._send_waiting()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def _setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")
