"""Passes requests on to an engine without the fields that it does not know: sglang-router adds SGLang's own to each, with null or false.

python -m tests.bench.known_fields --to PORT --port PORT
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json

KNOWN = ("model", "prompt", "max_tokens", "temperature", "ignore_eos", "stream", "stream_options")
END = b"\r\n\r\n"


def reduced(body: bytes) -> bytes:
    """A JSON object's known fields."""
    fields = json.loads(body)
    return json.dumps({name: fields[name] for name in KNOWN if name in fields}).encode()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: int) -> None:
    """One request of a connection, which is then closed."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        head = await reader.readuntil(END)
        first, *lines = head[: -len(END)].split(b"\r\n")
        headers = dict(line.lower().split(b":", 1) for line in lines)
        body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
        if body:
            body = reduced(body)
        more = (
            b"\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d"
            % len(body)
        )
        answers, engine = await asyncio.open_connection("127.0.0.1", to)
        engine.write(first + more + END + body)
        while data := await answers.read(1 << 16):
            writer.write(data)
            await writer.drain()
        engine.close()
    writer.close()


async def serve(port: int, to: int) -> None:
    server = await asyncio.start_server(lambda r, w: passed(r, w, to), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.known_fields", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="where to listen")
    parser.add_argument("--to", type=int, required=True, help="the engine's port")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.to))


if __name__ == "__main__":
    main()
