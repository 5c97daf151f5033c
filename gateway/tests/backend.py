"""A stub engine: python backend.py PORT NAME [option...]. OpenAI-shaped, raw asyncio, starts in a blink.

Options: `500`, `503` or `429` answers every request with it, `retriable-503` adds the mark that the contract gives it,
`flaky` every second one with 500, `reset` closes the connection without an answer, `hang` never answers, `odd-header`
answers with a header that HTTP/2 does not allow, `fails-marked` answers a body that holds "always fails" with 500,
`keepalive=N` closes idle connections after N seconds as uvicorn does. `seqs=N` gives it a `GET /load` as of an engine with
room for N sequences. POST /v1/load_lora_adapter and /v1/unload_lora_adapter change the adapters that it tells there. A body that holds "poison" kills the process.

Request headers: `x-tokens` (stream so many), `x-interval` (seconds between them), `x-delay` (seconds before the first byte),
`x-answer-bytes` (answer so many). GET /stub/stats tells what was seen, and GET /stub/finish lets the requests that are under way
end now: what is left of a delay or of a stream's tokens is left out. Neither is counted, and nor is `GET /load`.
"""

import asyncio
import contextlib
import json
import os
import sys

PORT, NAME, OPTIONS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
KEEPALIVE = next((float(o.partition("=")[2]) for o in OPTIONS if o.startswith("keepalive=")), None)
SEQS = next((int(o.partition("=")[2]) for o in OPTIONS if o.startswith("seqs=")), 0)
STATS = {
    "requests": 0,
    "aborted": 0,
    "running": 0,
    "poured": 0,
    "idle_closed_by_peer": 0,
    "idle_closed_here": 0,
}
ADAPTERS: set[str] = set()
SEEN: list[dict[str, object]] = []


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def pause(seconds: float, finish: asyncio.Event) -> None:
    """Shorter where the request is told to finish."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await finish.wait()


def load() -> dict[str, object]:
    running = min(STATS["running"], SEQS)
    waiting = STATS["running"] - running
    return {
        "running": running,
        "waiting": waiting,
        "kv_usage": 0.0,
        "max_num_seqs": SEQS,
        "outstanding_tokens": 10 * STATS["running"],
        "adapters": sorted(ADAPTERS),
    }


class Engine(asyncio.Protocol):
    finish = asyncio.Event()
    """Of the requests that are under way; those that come after it have another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer = transport, bytearray()
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.used = False
        self.closed_here = False
        self.room = asyncio.Event()
        self.room.set()

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
        elif self.used and not self.closed_here:
            STATS["idle_closed_by_peer"] += 1
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = bytes(self.buffer[:end]).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
        total = end + 4 + int(headers.get("content-length", 0))
        if headers.get("transfer-encoding") == "chunked":
            last = self.buffer.find(b"0\r\n\r\n", end)
            if last < 0:
                return
            total = last + 5
        if len(self.buffer) < total:
            return
        body = bytes(self.buffer[end + 4 : total])
        del self.buffer[:total]
        method, path, _ = lines[0].split(" ")
        if path.startswith("/stub/"):
            if path == "/stub/finish":
                Engine.finish.set()
                Engine.finish = asyncio.Event()
            answer = SEEN if path == "/stub/seen" else STATS
            self.reply(200, json.dumps(answer).encode())
            return
        if path == "/load":
            self.reply(200 if SEQS else 404, json.dumps(load()).encode())
            return
        if path.endswith("load_lora_adapter"):
            name = json.loads(body)["lora_name"]
            ADAPTERS.discard(name) if "unload" in path else ADAPTERS.add(name)
            self.reply(200, b"{}")
            return
        STATS["requests"] += 1
        self.used = True
        SEEN.append({"method": method, "path": path, "headers": headers, "length": len(body)})
        if b"poison" in body:
            os._exit(1)
        if "fails-marked" in OPTIONS and b"always fails" in body:
            self.reply(500, b'{"error": {"message": "it failed"}}')
            return
        self.task = asyncio.ensure_future(self.serve(headers))

    async def serve(self, headers: dict[str, str]) -> None:
        STATS["running"] += 1
        finish = Engine.finish
        try:
            await pause(float(headers.get("x-delay", 0)), finish)
            if "reset" in OPTIONS:
                self.transport.abort()
            elif "odd-header" in OPTIONS:
                self.reply(200, b"{}", "te: gzip\r\n")
            elif "hang" in OPTIONS:
                await asyncio.sleep(3600)
            elif "flaky" in OPTIONS and STATS["requests"] % 2:
                self.reply(500, b'{"error": {"message": "flaky"}}')
            elif refusals := {"500", "503", "429"}.intersection(OPTIONS):
                self.reply(int(refusals.pop()), b'{"error": {"message": "busy"}}')
            elif "retriable-503" in OPTIONS:
                self.reply(
                    503,
                    b'{"error": {"message": "draining"}}',
                    "x-llmendpoint-retriable: 1\r\nretry-after: 1\r\n",
                )
            elif "x-answer-bytes" in headers:
                await self.pour(int(headers["x-answer-bytes"]))
            elif "x-tokens" in headers:
                tokens, interval = int(headers["x-tokens"]), float(headers.get("x-interval", 0.02))
                await self.stream(tokens, interval, finish)
            else:
                message = {"role": "assistant", "content": f"hello from {NAME}"}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                body = {
                    "id": "c",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                }
                self.reply(200, json.dumps(body).encode())
        except asyncio.CancelledError:
            STATS["aborted"] += 1
            raise
        finally:
            STATS["running"] -= 1
        if KEEPALIVE is not None:
            self.timer = asyncio.get_running_loop().call_later(KEEPALIVE, self.close_idle)

    def close_idle(self) -> None:
        STATS["idle_closed_here"] += 1
        self.closed_here = True
        self.transport.close()

    async def stream(self, tokens: int, interval: float, finish: asyncio.Event) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-engine: {NAME}\r\ntransfer-encoding: chunked\r\n\r\n"
        self.transport.write(head.encode())
        for n in range(tokens):
            self.transport.write(chunk(event(f" {NAME}{n}")))
            await pause(interval, finish)
            if finish.is_set():
                break
        self.transport.write(chunk(event("", "stop")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async def pour(self, size: int) -> None:
        """No more than the peer takes."""
        self.transport.write(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode())
        for at in range(0, size, 1 << 16):
            await self.room.wait()
            self.transport.write(b"x" * min(1 << 16, size - at))
            STATS["poured"] += min(1 << 16, size - at)

    def reply(self, status: int, body: bytes, more: str = "") -> None:
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nx-engine: {NAME}\r\n{more}content-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", PORT, backlog=4096)
    await server.serve_forever()


asyncio.run(main())
