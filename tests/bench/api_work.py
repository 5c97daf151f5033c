"""What the API process does for a streamed token, without the sockets: from the engine's frame to the event's bytes.

As many streams as are served without a wait, one token a step for each, one step after another.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from unittest.mock import Mock

import uvloop

from llmendpoint_server import protocol
from llmendpoint_server.api.answer import Account, Answer, Record
from llmendpoint_server.api.detokenize import TextStream
from llmendpoint_server.api.engine_client import MANY_STREAMS, EngineClient
from llmendpoint_server.api.generation import Generation
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.responses import Usage
from llmendpoint_server.api.shapes import ChatShape, Events
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.core.request import Request, RequestOutput, SamplingParams
from llmendpoint_server.weights.locate import resolve_model
from tests.bench.results import Result

STREAMS = MANY_STREAMS - 1
STEPS = 500
ROUNDS = 5
TEXT = Path(__file__).parent.parent.parent / "docs" / "concepts" / "architecture.md"


async def _stream(client: EngineClient, name: str, tokenizer: ModelTokenizer, metrics: Metrics) -> None:
    """One streamed answer, as `completions` makes it; its bytes go nowhere."""
    stream = client.submit(Request(name, (1,), SamplingParams(10**6)))
    text, usage = TextStream(tokenizer.decode, (), tokenizer.plain), Usage(1)
    account = Account(client, metrics, Record(), usage, time.monotonic())
    answer = Answer(0, stream, text, account)
    events = Events(ChatShape(name, 0, "demo"), usage)
    await Generation([answer], account).read(lambda piece: bool(events.piece(piece)))


async def microseconds_a_token() -> float:
    client = EngineClient(protocol.Configure("demo"), step_timeout=60)
    client.connection_made(Mock(is_closing=lambda: False, get_write_buffer_size=lambda: 0))
    client.state = "ready"
    tokenizer, metrics = ModelTokenizer(resolve_model("embedded://demo")), Metrics(client, "demo")
    names = [f"chatcmpl-{number:032x}" for number in range(STREAMS)]
    tasks = [asyncio.create_task(_stream(client, name, tokenizer, metrics)) for name in names]
    await asyncio.sleep(0)
    ids = tokenizer.encode(TEXT.read_text())
    steps = [
        tuple(RequestOutput(name, (ids[(step + 37 * at) % len(ids)],)) for at, name in enumerate(names))
        for step in range(STEPS)
    ]
    frames = [protocol.encode(protocol.StepOutput(step), protocol.Stats()) for step in steps]
    before = time.thread_time()
    for frame in frames:
        client.data_received(frame)
    spent = time.thread_time() - before
    if any(task.done() for task in tasks):
        raise RuntimeError("a stream has ended before its last token")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return spent / (STEPS * STREAMS) * 1e6


def result() -> Result:
    spent = statistics.median(uvloop.run(microseconds_a_token()) for _ in range(ROUNDS))
    return Result("work of the API process for a token, without the sockets", spent, "us", goal="<= 5 us")
