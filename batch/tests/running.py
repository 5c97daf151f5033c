"""The real service: in this process, or as a process that can be killed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from openai.types import Batch

from llmendpoint_batch.__main__ import DATABASE_URL
from tests.ports import free_port

PRELOADED = Path(__file__).with_name("preloaded.py")
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass
class Process:
    """One that forks services: a fork takes 20 ms, and a Python that imports them 500."""

    forker: asyncio.subprocess.Process
    arguments: list[str]
    url: str
    state_url: str
    pid: int = 0
    clients: list[openai.AsyncOpenAI] = field(default_factory=list)

    async def start(self) -> None:
        assert self.forker.stdin is not None
        assert self.forker.stdout is not None
        self.forker.stdin.write(json.dumps(self.arguments).encode() + b"\n")
        self.pid = int(await self.forker.stdout.readline())

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """Its exit status, as os.waitpid has it."""
        assert self.forker.stdout is not None
        os.kill(self.pid, number)
        return int(await self.forker.stdout.readline())

    @property
    def client(self) -> openai.AsyncOpenAI:
        """A new one: its connections are none of a killed service."""
        made = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=10)
        self.clients.append(made)
        return made


@asynccontextmanager
async def service(
    data: Path,
    gateway: str,
    *more: str,
    log: int | None = None,
    database: str = "",
    wait: bool = True,
    port: int = 0,
) -> AsyncIterator[Process]:
    """Started, and answering unless `wait` is False. Killed at the end. `log`: where it goes; None: with that of the tests.
    `database`: the URL of PostgreSQL. `port`: 0 is any."""
    port, state_port = port or free_port(), free_port()
    arguments = [
        "--data", str(data), "--gateway", gateway, "--host", "127.0.0.1", "--port", str(port),
        "--state-port", str(state_port), *more,
    ]  # fmt: skip
    forker = await asyncio.create_subprocess_exec(
        sys.executable, str(PRELOADED), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        env=os.environ | {DATABASE_URL: database},
    )  # fmt: skip
    process = Process(forker, arguments, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{state_port}")
    try:
        await process.start()
        if wait:
            await answering(process)
        yield process
    finally:
        for client in process.clients:
            await client.close()
        if process.pid:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        forker.kill()
        await forker.wait()


async def answering(process: Process) -> None:
    client = process.client
    async with asyncio.timeout(20):
        while True:
            try:
                await client.files.list(limit=1)
                return
            except openai.APIConnectionError:
                await asyncio.sleep(0.01)


async def submit(client: openai.AsyncOpenAI, content: bytes, **options: Any) -> Batch:
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    given = {"endpoint": "/v1/completions", "completion_window": "24h"} | options
    return await client.batches.create(input_file_id=file.id, **given)


async def ended(client: openai.AsyncOpenAI, batch_id: str, seconds: float = 30) -> Batch:
    async with asyncio.timeout(seconds):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ENDED:
                return batch
            await asyncio.sleep(0.02)


async def rows(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(row) for row in (await client.files.content(file_id)).text.splitlines()]
