"""An HTTP/2 client with prior knowledge, as little of RFC 9113 as the tests need: many streams on one connection, bodies
sent as the windows allow, and what came back as bytes. It can break the rules on purpose.

Response headers are not decoded: our answers say in their bodies what they are, and `:status 200` is one byte (0x88).
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
WINDOW = 1 << 30  # what we take, unasked


@dataclass(eq=False)
class Exchange:
    """One stream. `ok`: the status was 200; `reset`: the code of a RST_STREAM, None without one."""

    id: int
    window: int
    ok: bool = False
    body: bytes = b""
    reset: int | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Http2Client:
    """A context. `window`: bytes of each answer that we take without a word."""

    def __init__(self, port: int, window: int = WINDOW) -> None:
        self._port = port
        self._our_window = window
        self.settings: dict[int, int] = {}
        self.goaway: int | None = None
        self.closed = asyncio.Event()
        self._streams: dict[int, Exchange] = {}
        self._window, self._first_window, self._next = 65_535, 65_535, 1
        self._wider = asyncio.Event()
        self._greeted = asyncio.Event()

    async def __aenter__(self) -> "Http2Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(
            PREFACE
            + frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2) + self._our_window.to_bytes(4))
            + frame(WINDOW_UPDATE, 0, 0, self._our_window.to_bytes(4))
        )
        self._task = asyncio.create_task(self._read())
        await asyncio.wait_for(self._greeted.wait(), 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._writer.close()

    def open(self, path: str, headers: dict[str, str], end: bool = False) -> Exchange:
        """Send a request's headers; POST, unless its end comes with them."""
        exchange = Exchange(self._next, self._first_window)
        self._next += 2
        self._streams[exchange.id] = exchange
        fields = {
            ":method": "GET" if end else "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "x",
            **headers,
        }
        block = b"".join(literal(name) + literal(value, name=False) for name, value in fields.items())
        first, *rest = [block[n : n + 16_384] for n in range(0, len(block), 16_384)]
        flags = (0 if rest else END_HEADERS) | (END_STREAM if end else 0)
        self._writer.write(frame(HEADERS, flags, exchange.id, first))
        for n, part in enumerate(rest, 1):
            self._writer.write(frame(9, END_HEADERS if n == len(rest) else 0, exchange.id, part))
        return exchange

    async def send(self, exchange: Exchange, body: bytes, end: bool = True) -> None:
        """As the windows allow; it gives up when the stream has ended."""
        view = memoryview(body)
        while view and not exchange.ended.is_set():
            size = min(len(view), 16_384, exchange.window, self._window)
            if size <= 0:
                self._wider.clear()
                await self._wider.wait()
                continue
            exchange.window -= size
            self._window -= size
            last = end and size == len(view)
            self._writer.write(frame(DATA, END_STREAM if last else 0, exchange.id, bytes(view[:size])))
            view = view[size:]
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

    def cancel(self, exchange: Exchange) -> None:
        self._writer.write(frame(RST_STREAM, 0, exchange.id, (8).to_bytes(4)))

    async def drain(self) -> None:
        with contextlib.suppress(ConnectionError):  # `closed` tells
            await self._writer.drain()

    async def post(self, path: str, body: bytes, **headers: str) -> Exchange:
        """Until the answer's end."""
        exchange = self.open(path, {"content-type": "application/json", **headers})
        await self.send(exchange, body)
        await asyncio.wait_for(exchange.ended.wait(), 60)
        return exchange

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3]))
                self._take(head[3], head[4], int.from_bytes(head[5:]) & 0x7FFF_FFFF, payload)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.closed.set()
            self._greeted.set()
            for exchange in self._streams.values():
                exchange.ended.set()
            self._wider.set()

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        exchange = self._streams.get(number)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                self._set(int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6]))
            self._writer.write(frame(SETTINGS, ACK, 0, b""))
            self._greeted.set()
        elif kind == WINDOW_UPDATE:
            size = int.from_bytes(payload)
            if number == 0:
                self._window += size
            elif exchange is not None:
                exchange.window += size
            self._wider.set()
        elif kind == PING and not flags & ACK:
            self._writer.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8])
        elif exchange is not None:
            self._of_stream(exchange, kind, flags, payload)

    def _of_stream(self, exchange: Exchange, kind: int, flags: int, payload: bytes) -> None:
        if kind == HEADERS and not exchange.ok:
            exchange.ok = payload[:1] == b"\x88"
        elif kind == DATA:
            exchange.body += payload
        elif kind == RST_STREAM:
            exchange.reset = int.from_bytes(payload)
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            exchange.ended.set()
            self._wider.set()

    def _set(self, name: int, value: int) -> None:
        self.settings[name] = value
        if name == INITIAL_WINDOW_SIZE:
            for exchange in self._streams.values():
                exchange.window += value - self._first_window
            self._first_window = value
            self._wider.set()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def literal(text: str, name: bool = True) -> bytes:
    """A header's name or value, which no table remembers, without Huffman's code (RFC 7541)."""
    data, size = text.encode(), b""
    rest = len(data)
    if rest < 127:
        size = bytes((rest,))
    else:
        size, rest = b"\x7f", rest - 127
        while rest >= 128:
            size, rest = size + bytes((rest & 127 | 128,)), rest >> 7
        size += bytes((rest,))
    return (b"\x00" if name else b"") + size + data
