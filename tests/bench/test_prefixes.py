"""docs/benchmarks.md: what `make bench-prefixes` asks and compares is what its table says."""

import asyncio
import itertools
import json

from tests.bench.known_fields import passed, reduced
from tests.bench.policies import by_fewest, in_turn
from tests.bench.prefixes import (
    OWN,
    PROMPT,
    ROUTER,
    Figures,
    Question,
    questions,
    results,
)
from tests.bench.serving.client import stream

CALM = Figures((0.1, 0.2, 0.3), 0.5, (1.0, 1.0))
SOON = Figures((0.01, 0.02, 0.03), 0.9, (1.1, 0.9))


def test_nine_tenths_of_a_prompt_are_its_tenants_and_the_same_seed_asks_the_same() -> None:
    asked = list(itertools.islice(questions(2, "a"), 20))
    assert {len(ask.text.split()) for ask in asked} == {PROMPT}
    assert len({" ".join(ask.text.split()[:OWN]) for ask in asked}) == 2
    assert len({ask.text for ask in asked}) == 20
    assert asked == list(itertools.islice(questions(2, "a"), 20))
    assert asked != list(itertools.islice(questions(2, "b"), 20))


async def test_in_turn_is_in_turn_and_the_fewest_requests_are_fewest() -> None:
    turns, fewest = in_turn((1, 2)), by_fewest((1, 2))
    async with turns() as one, turns() as two, turns() as three:
        assert [one[0], two[0], three[0]] == [1, 2, 1]
    async with fewest() as first, fewest() as second:
        assert {first[0], second[0]} == {1, 2}
    async with fewest() as first:
        for _ in range(3):
            async with fewest() as other:
                assert other != first


def test_a_router_that_cannot_run_has_a_row_that_says_why() -> None:
    found = {"in turn": CALM, "fewest requests": CALM, "gateway": SOON, "one tenant": SOON}
    rows = results(found, "cannot be installed")
    assert [row.against for row in rows if ROUTER in row.metric] == ["not measured: cannot be installed"]
    assert [(row.ratio, row.goal) for row in rows[:2]] == [(0.1, "ratio <= 0.33"), (0.1, "ratio < 1")]
    assert results({**found, ROUTER: CALM}, "")[2].against == f"{ROUTER}: 200 ms"


def test_only_fields_that_the_engine_knows_reach_it() -> None:
    body = json.dumps({"model": "bench", "prompt": "w1", "stream": True, "no_stop_trim": False}).encode()
    assert json.loads(reduced(body)) == {"model": "bench", "prompt": "w1", "stream": True}


async def test_what_stands_before_an_engine_passes_its_answer_on() -> None:
    seen: list[bytes] = []

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        text = b'data: {"choices":[{"text":"w1"}]}\n\n'
        usage = b'data: {"choices":[],"usage":{"completion_tokens":1}}\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + text + usage + b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(engine, "127.0.0.1", 0)
    to = server.sockets[0].getsockname()[1]
    before = await asyncio.start_server(lambda r, w: passed(r, w, to), "127.0.0.1", 0)
    async with server, before:
        found = await stream(before.sockets[0].getsockname()[1], "bench", Question((), 1, "w1"))
    assert found.tokens == 1
    assert seen[0].startswith(b"POST /v1/completions HTTP/1.1\r\n")
