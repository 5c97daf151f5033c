"""HTTP/1.1 with next to no client, so that what is measured is the other side."""

import asyncio
import time
from dataclasses import dataclass

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    seconds: float


class Connection:
    """One connection that is kept alive; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> Answer:
        """The whole answer, which must say how long it is; seconds from the first byte sent to the last received."""
        start = time.perf_counter()
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        body = await self._reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        return Answer(int(head.split(b" ", 2)[1]), body, time.perf_counter() - start)

    def close(self) -> None:
        self._writer.close()


def chat_request(model: str, size: int) -> bytes:
    """A chat request whose body has `size` bytes."""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "'.encode()
    body += b"x" * (size - len(body) - 4) + b'"}]}'
    return post(body)


def post(body: bytes) -> bytes:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
