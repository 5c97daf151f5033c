"""docs/concepts/batches.md: a service that is killed without warning loses no line and answers none twice."""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import openai
import psycopg

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
