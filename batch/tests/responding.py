"""What tests of stored responses share: a service, a gateway that answers it, and waiting."""

import asyncio
from collections.abc import Callable

import openai
from openai.types.responses import Response

from batch.tests.running import Process
from batch.tests.upstream import Upstream

MODEL = "default/chat"
Stage = tuple[Process, Upstream]


async def until(client: openai.AsyncOpenAI, response_id: str, *states: str) -> Response:
    async with asyncio.timeout(20):
        while True:
            response = await client.responses.retrieve(response_id)
            if response.status in (states or ("completed", "failed", "cancelled", "incomplete")):
                return response
            await asyncio.sleep(0.02)


async def happens(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if so():
                return
            await asyncio.sleep(0.02)
