"""docs/concepts/batches.md: a service that is killed without warning loses no line and answers none twice."""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import openai
import psycopg
import pytest
from openai.types.responses import Response

from batch.tests.inputs import lines
from batch.tests.postgres import Server
from batch.tests.running import Process, answering, ended, rows, service, submit
from batch.tests.upstream import Upstream, serve_upstream

KILLS, BATCHES, LINES = 50, 8, 50


async def test_every_line_is_answered_once_though_the_service_is_killed_at_50_points(
    tmp_path: Path,
) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        await _kill_often(process, upstream, KILLS, BATCHES)
        await _check_all(process, upstream)
        left = {path.name for path in (tmp_path / "files").iterdir()}
        assert left == {file.id async for file in await process.client.files.list()}
        assert list((tmp_path / "new").iterdir()) == []


async def test_the_same_holds_on_postgresql(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_database()
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        await _kill_often(process, upstream, 12, 3)
        await _check_all(process, upstream)
        known = {file.id async for file in await process.client.files.list()}
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT DISTINCT file FROM llmendpoint_batch.chunks").fetchall()
    assert {row[0] for row in found} == known
    assert os.listdir(tmp_path) == [], "no volume is needed"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_no_response_is_lost_though_the_service_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """One in the background is answered; one whose caller saw its stream begin is answered or failed."""
    url = request.getfixturevalue("postgres").new_database() if kind == "postgres" else ""
    kills, chance, queued, begun = 16 if kind == "sqlite" else 8, random.Random(5), list[str](), list[str]()
    reading: list[Any] = []
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        upstream.seconds = 0.3
        for number in range(kills):
            client = process.client
            stream = await client.responses.create(model="m", input=f"s-{number}-" + 60 * "x", stream=True)
            reading.append(aiter(stream))  # one that nobody holds is closed: its caller would have left
            begun.append((await anext(reading[-1])).response.id)
            for n in range(6):
                made = await client.responses.create(model="m", input=f"{number}-{n}", background=True)
                queued.append(made.id)
            await asyncio.sleep(chance.uniform(0, 0.35))
            await process.kill()
            await process.start()
            await answering(process)
        client, failed = process.client, 0
        for at, response_id in enumerate([*queued, *begun]):
            response = await _ended_response(client, response_id)
            assert response.id == response_id
            if at < len(queued):
                text = f"{at // 6}-{at % 6}"
                assert (response.status, response.output_text) == ("completed", f"1 {text[::-1]}")
            else:
                assert response.status in ("completed", "failed")
                failed += response.status == "failed"
        print(f"{kills} kills, {len(queued)} in the background, {failed} of {kills} streams failed")
        assert failed > 0, "no kill met a stream"
        assert max(upstream.asked.values()) > 1, "no kill met one in the background"


async def _ended_response(client: openai.AsyncOpenAI, response_id: str) -> Response:
    async with asyncio.timeout(30):
        while True:
            response = await client.responses.retrieve(response_id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.02)


async def _kill_often(process: Process, upstream: Upstream, kills: int, submitted: int) -> None:
    chance = random.Random(18)
    upstream.seconds = 0.06
    for number in range(kills):
        if number % (kills // submitted) == 0:
            await _submit_once_more(process, number)
        await asyncio.sleep(chance.uniform(0, 0.25))
        status = await process.kill()
        assert os.WTERMSIG(status) == signal.SIGKILL
        await process.start()
        if chance.random() < 0.5:
            await answering(process)
    await answering(process)


async def _check_all(process: Process, upstream: Upstream) -> None:
    client = process.client
    found = [batch.id async for batch in await client.batches.list()]
    assert len(found) >= 3
    for batch_id in found:
        await _check(client, batch_id)
    again = sum(upstream.asked.values()) - len(upstream.asked)
    print(f"{len(found)} batches, {again} lines were sent more than once")
    assert again > 0, "no kill met a line under way"


async def _submit_once_more(process: Process, number: int) -> None:
    ids = [f"{number}-{'bad' if n % 10 == 3 else 'good'}-{n}" for n in range(LINES)]
    await answering(process)
    await submit(process.client, lines(ids, model=f"default/chat-{number % 3}"))


async def _check(client: openai.AsyncOpenAI, batch_id: str) -> None:
    batch = await ended(client, batch_id)
    good, bad = await rows(client, batch.output_file_id), await rows(client, batch.error_file_id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (len(good), len(bad))
    seen = Counter(row["custom_id"] for row in (*good, *bad))
    assert set(seen.values()) == {1}
    assert len(seen) == batch.request_counts.total == LINES
    for row in good:
        assert row["response"]["body"]["choices"][0]["text"] == row["custom_id"][::-1]
    assert all("bad" in row["custom_id"] and row["response"]["status_code"] == 400 for row in bad)
