"""docs/concepts/responses.md: the whole way, caller, gateway, batch service, gateway, engine, by the `openai` SDK."""

import asyncio
from pathlib import Path
from typing import Any

import openai

from batch.tests.running import ended, rows, service, submit
from gateway.tests.engine_process import Simulator
from gateway.tests.harness import running_gateway
from tests.ports import free_port


async def test_responses_are_stored_continued_streamed_and_computed_in_the_background(tmp_path: Path) -> None:
    port, engine = free_port(), Simulator("team/stored").start()
    try:
        with running_gateway(batch_service=f"127.0.0.1:{port}") as gateway:
            model = f"team/{gateway.endpoint(engine, name='stored')}"
            async with service(tmp_path, gateway.url, port=port) as process:
                client = openai.AsyncOpenAI(
                    base_url=f"{gateway.url}/v1", api_key="x", max_retries=0, timeout=30
                )
                first = await client.responses.create(model=model, input="Hello", max_output_tokens=8)
                assert first.output_text
                assert await client.responses.retrieve(first.id) == first
                asked: Any = {"model": model, "previous_response_id": first.id, "max_output_tokens": 8}
                async with client.responses.stream(input="And now?", **asked) as events:
                    pieces = [
                        event.delta async for event in events if event.type == "response.output_text.delta"
                    ]
                    last = await events.get_final_response()
                assert "".join(pieces) == last.output_text
                assert last.usage is not None
                assert first.usage is not None
                assert last.usage.input_tokens > first.usage.input_tokens, (
                    "the engine had the whole conversation"
                )
                assert (await client.responses.retrieve(last.id)).output_text == last.output_text
                made = await client.responses.create(input="Later.", background=True, **asked)
                async with asyncio.timeout(20):
                    while made.status in ("queued", "in_progress"):
                        await asyncio.sleep(0.05)
                        made = await client.responses.retrieve(made.id)
                assert made.status in ("completed", "incomplete")
                assert made.output_text
                await client.responses.delete(made.id)
                line = f'{{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {{"model": "{model}", "input": "x"}}}}'
                batch = await submit(client, line.encode(), endpoint="/v1/responses")
                batch = await ended(client, batch.id)
                [row] = await rows(client, batch.output_file_id)
                assert row["response"]["body"]["object"] == "response"
                assert process.url
                await client.close()
    finally:
        engine.kill()
