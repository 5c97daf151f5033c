"""docs/concepts/responses.md: whatever callers send to `/v1/responses`, the service stays below its memory limit (1 GiB in the chart)."""

import asyncio
import json
import tracemalloc
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from batch.tests.running import Process, service
from batch.tests.storage import OnDisk
from batch.tests.upstream import serve_upstream
from llmendpoint_batch.core.response_object import Final, State, Stored
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import responses

LARGE = "x" * (8_000_000)
MIB = 1 << 20


async def send(process: Process, model: str, background: bool) -> int:
    body = json.dumps({"model": model, "input": LARGE, "background": background, "store": background})
    async with httpx.AsyncClient(timeout=20) as client:
        return (await client.post(f"{process.url}/v1/responses", content=body)).status_code


def most_memory(process: Process) -> int:
    """MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


async def test_large_background_responses_are_sent_a_few_at_a_time(tmp_path: Path) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        upstream.seconds = 60
        for at in range(16):
            assert await send(process, f"model-{at % 4}", background=True) == 200
        await asyncio.sleep(1.5)
        assert 1 < upstream.now < 12
        assert most_memory(process) < 384


async def test_large_responses_whose_callers_wait_are_refused_before_the_memory_is_full(
    tmp_path: Path,
) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        upstream.seconds = 3
        codes = await asyncio.gather(*(send(process, "model", background=False) for _ in range(16)))
        assert {200, 429} == set(codes)
        assert most_memory(process) < 512
        assert await send(process, "model", background=False) == 200, "what they held is free again"


async def test_callers_that_only_announce_large_bodies_keep_nobody_waiting(tmp_path: Path) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        head = b"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n{"
        port = urlsplit(process.url).port
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for _, writer in opened:
            writer.write(head)
        await asyncio.sleep(0.3)
        assert (await process.client.responses.create(model="m", input="one", store=False)).output_text
        for _, writer in opened:
            writer.close()


async def test_who_asks_for_a_large_response_and_does_not_read_it_fills_no_memory(tmp_path: Path) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        upstream.seconds = 60
        client = process.client
        made = await client.responses.create(model="m", input="one", instructions=LARGE, background=True)
        await client.responses.cancel(made.id)
        port, opened = urlsplit(process.url).port, []
        for _ in range(60):
            opened.append(await asyncio.open_connection("127.0.0.1", port, limit=1024))
            opened[-1][1].write(f"GET /v1/responses/{made.id} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await asyncio.sleep(2)
        assert most_memory(process) < 448
        for _, writer in opened:
            writer.close()
        await asyncio.sleep(0.2)
        assert (await client.responses.retrieve(made.id)).instructions == LARGE


def test_a_conversation_is_read_without_what_its_answers_repeat_and_that_has_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer repeats tools and instructions, which are no part of the conversation."""
    db, previous, text = OnDisk(), None, "i" * MIB
    item = [{"type": "message", "role": "assistant", "content": "yes"}]
    answer = msgspec.json.encode({"status": "completed", "output": item, "instructions": text})
    for at in range(60):
        new = Stored(
            f"resp_{at}", State.IN_PROGRESS, "m", 0, False, "", previous, b"{}", b'[{"role":"user"}]'
        )
        db.write(responses.create, new, 1, 100.0, 100.0, 1000 * MIB)
        db.write(responses.finish, new.id, Final(State.COMPLETED, answer, 1, 50), 100.0)
        previous = new.id
    with monkeypatch.context() as patch:
        patch.setattr(responses, "CHAIN_KEPT_BYTES", 50 * MIB)
        new = Stored("resp_more", State.IN_PROGRESS, "m", 0, False, "", previous, b"{}", b"[]")
        with pytest.raises(Refused, match="Begin a new one"):
            db.write(responses.create, new, 1, 100.0, 100.0, 1000 * MIB)
    tracemalloc.start()
    found = db.read(responses.conversation, previous)
    left, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    db.close()
    assert len(found) == 120
    assert left < MIB
    assert most < 24 * MIB
