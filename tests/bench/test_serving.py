"""docs/benchmarks.md: what the clients of `make bench-serving` note is what the server sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.serving.asks import Prompter, percentile
from tests.bench.serving.client import Ask, RequestFailed, all_of, stream

OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = b'data: {"choices":[{"text":"w1"}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_an_event_with_text_is_a_moment_and_usage_is_the_count() -> None:
    async with server(OK + b"".join(map(chunk, (TEXT, TEXT, USAGE, DONE)))) as port:
        found = await stream(port, "bench", Ask((1, 2), 2))
    assert len(found.events) == 2
    assert found.tokens == 2
    assert found.ttft > 0
    assert len(found.gaps) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\nfull", "429 Too Many Requests: full"),
        (OK + chunk(TEXT), "the stream ended"),
        (OK + b"".join(map(chunk, (TEXT, USAGE, DONE))), "2 tokens came, not 3"),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error(answer: bytes, reason: str) -> None:
    async with server(answer) as port:
        with pytest.raises(RequestFailed, match=reason):
            await stream(port, "bench", Ask((1, 2), 3))


async def test_all_requests_are_made() -> None:
    async with server(OK + b"".join(map(chunk, (TEXT, TEXT, USAGE, DONE)))) as port:
        found, seconds = await all_of(port, "bench", [Ask((1,), 2)] * 5, at_once=2)
    assert len(found) == 5
    assert seconds > 0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from((0.5, 0.9, 0.99)))
def test_at_least_that_share_of_the_values_do_not_pass_a_percentile(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize("ask", [lambda p: p.conversations(50), lambda p: p.even(3, 4, 5)])
def test_the_same_seed_asks_the_same(ask: Callable[[Prompter], list[Ask]]) -> None:
    assert ask(Prompter(1)) == ask(Prompter(1))
    assert ask(Prompter(1)) != ask(Prompter(2))


def test_conversations_have_bounds() -> None:
    asks = Prompter(1).conversations(500)
    assert all(4 <= len(ask.prompt) <= 1024 and 4 <= ask.max_tokens <= 512 for ask in asks)
    assert 150 < sum(len(ask.prompt) for ask in asks) / 500 < 260
    assert 150 < sum(ask.max_tokens for ask in asks) / 500 < 260
