"""docs/concepts/batches.md: endpoints without room are waited for, windows end, a full disk loses nothing, old files go."""

import asyncio
import resource
import sqlite3
from collections import Counter
from pathlib import Path

import openai
import pytest
from aiohttp import web

from batch.tests.inputs import lines
from batch.tests.running import answering, ended, rows, service, submit
from batch.tests.upstream import Json, error, serve_upstream, usual
from llmendpoint_batch.core.outcomes import Keep, Reply
from llmendpoint_batch.core.records import File, Pending
from llmendpoint_batch.errors import InUse, StorageFull
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.store import batches, files
from llmendpoint_batch.store.blobs import write_lines
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.store.lines import Answered
from llmendpoint_batch.store.sqlite import Sqlite, take_folder
from llmendpoint_batch.work.housekeeping import clean
from llmendpoint_batch.work.recording import Recorder
from llmendpoint_batch.work.times import Times


async def test_no_room_is_waited_for_and_a_broken_answer_is_tried_again(tmp_path: Path) -> None:
    refused: Counter[str] = Counter()

    async def answer(body: Json) -> web.StreamResponse:
        prompt = body["prompt"]
        refused[prompt] += 1
        if prompt == "crash":
            return error(500, "engine_failed")
        if refused[prompt] == 1 and prompt.endswith("7"):
            return error(429, "queue_full", **{"retry-after": "0"})
        if refused[prompt] == 1 and prompt.endswith("8"):
            return web.Response(status=502, body=b"\xff")
        return await usual(body)

    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        upstream.answer = answer
        batch = await submit(process.client, lines([*(f"{n}" for n in range(20)), "crash"]))
        batch = await ended(process.client, batch.id)
        good, bad = (
            await rows(process.client, batch.output_file_id),
            await rows(process.client, batch.error_file_id),
        )
        assert [row["custom_id"] for row in good] == [str(n) for n in range(20)]
        assert [row["response"]["status_code"] for row in bad] == [500]
        assert refused["crash"] == 5


async def test_an_endpoint_that_is_away_stops_no_other_and_its_window_ends(tmp_path: Path) -> None:
    async def answer(body: Json) -> web.StreamResponse:
        return error(503, "no_ready_replica") if body["model"] == "a/away" else await usual(body)

    async with serve_upstream() as upstream, service(tmp_path, upstream.url) as process:
        upstream.answer = answer
        away = await submit(process.client, lines(["x", "y"], model="a/away"), completion_window="1m")
        here = await submit(process.client, lines([str(n) for n in range(30)], model="a/here"))
        assert (await ended(process.client, here.id)).status == "completed"
        assert (await process.client.batches.retrieve(away.id)).status == "in_progress"
        await process.kill()
        await process_later(tmp_path, 61)
        await process.start()
        await answering(process)
        late = await ended(process.client, away.id)
        assert late.status == "expired"
        bad = await rows(process.client, late.error_file_id)
        assert [row["error"]["code"] for row in bad] == ["batch_expired"] * 2


async def process_later(data: Path, seconds: float) -> None:
    """As if the service had been down for so long."""
    with sqlite3.connect(data / "batches.sqlite") as connection:
        connection.execute("UPDATE clock SET wall = wall - ?", (seconds,))
    connection.close()


async def test_batches_of_one_endpoint_share_it(tmp_path: Path) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, "--concurrency", "2") as process:
        upstream.seconds = 0.01
        large = await submit(process.client, lines([f"large-{n}" for n in range(150)]))
        small = await submit(process.client, lines([f"small-{n}" for n in range(10)]))
        await ended(process.client, small.id)
        assert (await process.client.batches.retrieve(large.id)).status == "in_progress"
        await ended(process.client, large.id)
        first = upstream.order.index("small-0")
        among = upstream.order[first : first + 20]
        assert sum(prompt.startswith("small") for prompt in among) >= 9, "turn by turn"
        assert upstream.most <= 2


async def test_a_line_that_never_finds_room_steps_back_so_that_the_others_go_on(tmp_path: Path) -> None:
    async def answer(body: Json) -> web.StreamResponse:
        never = body["prompt"].startswith("never")
        return error(429, "queue_full", **{"retry-after": "0"}) if never else await usual(body)

    async with serve_upstream() as upstream, service(tmp_path, upstream.url, "--concurrency", "1") as process:
        upstream.answer = answer
        held = await submit(process.client, lines(["never-1", *(f"own-{n}" for n in range(100)), "never-2"]))
        other = await submit(process.client, lines([f"other-{n}" for n in range(40)]))
        assert (await ended(process.client, other.id)).status == "completed"
        for _ in range(600):
            counts = (await process.client.batches.retrieve(held.id)).request_counts
            if counts is not None and counts.completed == 100:
                break
            await asyncio.sleep(0.05)
        assert counts is not None
        assert counts.completed == 100
        assert upstream.asked["never-1"] < 30, "it comes back ever more seldom"
        upstream.answer = None
        assert (await ended(process.client, held.id, 60)).status == "completed"
        assert upstream.asked["never-2"] > 1


async def test_a_second_process_does_not_get_the_folder(tmp_path: Path) -> None:
    async with serve_upstream() as upstream, service(tmp_path, upstream.url):
        with pytest.raises(InUse, match="another process serves"):
            take_folder(tmp_path, wait=False)


async def test_answers_wait_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_batch.work.recording.RETRY_SECONDS", 0.02)
    database, metrics = Database(Sqlite(tmp_path / "db")), Metrics()
    await database.write(
        lambda c: c.execute(
            "INSERT INTO lines (batch, number, custom_id, offset, length) VALUES (1, 1, 'x', 0, 0)"
        )
    )
    await database.write(lambda c: c.execute("PRAGMA max_page_count = 1").fetchone())
    recorder = Recorder(database, metrics)
    running = asyncio.create_task(recorder.run())
    kept = Keep(Reply(200, b'"' + b"a" * 100_000 + b'"'), good=True)
    waiting = asyncio.create_task(recorder.record(Answered(1, "batch_1", Pending(1, "x", 0, 0), kept)))
    with pytest.raises(StorageFull, match="full"):
        await database.write(
            lambda c: c.execute("INSERT INTO lines SELECT 2, 1, 2, zeroblob(1e6), 0, 0, 0, 0")
        )
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert metrics.storage_failures._value.get() >= 1
    await database.write(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchone())
    await asyncio.wait_for(waiting, 5)
    states = await database.read(lambda c: c.execute("SELECT state FROM lines").fetchall())
    assert states == [(1,)]
    running.cancel()
    database.close()


async def test_a_full_disk_refuses_uploads_and_loses_no_answer(tmp_path: Path) -> None:
    """No file may grow, the database's own included."""
    quiet = asyncio.subprocess.DEVNULL  # pytest has the log in a file, which may not grow either
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, log=quiet) as process:
        upstream.seconds = 0.02
        batch = await submit(process.client, lines([f"{n}" for n in range(80)]))
        await asyncio.sleep(0.1)
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(
                openai.InternalServerError, match="disk of the batch service is full"
            ) as caught:
                await process.client.files.create(file=lines(["x"]), purpose="batch")
            assert caught.value.status_code == 507
        with pytest.raises(openai.InternalServerError, match="disk of the batch service is full"):
            await process.client.batches.cancel(batch.id)
        assert list((tmp_path / "new").iterdir()) == []
        asked = sum(upstream.asked.values())
        await asyncio.sleep(0.3)
        assert sum(upstream.asked.values()) <= asked + 8, "no more lines are sent than can be kept"
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        batch = await ended(process.client, batch.id)
        assert batch.status == "completed"
        assert len(await rows(process.client, batch.output_file_id)) == 80
        assert set(upstream.asked.values()) == {1}, "what was answered was kept until there was room"


async def test_what_is_past_its_time_is_deleted_but_not_what_a_batch_reads(tmp_path: Path) -> None:
    database, folder, times = Database(Sqlite(tmp_path / "db")), Folder(tmp_path), Times(None)
    for name, deadline in (("old", -1.0), ("used", -1.0), ("new", 1e9)):
        write_lines(folder, f"file-{name}", [b"x"])
        await database.write(files.add, File(f"file-{name}", name, "batch", 2, 0, 0, deadline))
    insert = (
        "INSERT INTO batches (id, status, endpoint, model, input_file_id, window, metadata, created_at, "
        "expires_at, deadline) VALUES (?, ?, '', '', 'file-used', '', 'null', 0, 0, -1)"
    )
    await database.write(lambda c: c.execute(insert, ("batch_going", "in_progress")))
    await database.write(lambda c: c.execute(insert, ("batch_ended", "completed")))
    await clean(database, folder, times, Metrics())
    assert await database.read(files.ids) == {"file-used", "file-new"}
    assert {path.name for path in folder.files.iterdir()} == {"file-used", "file-new"}
    found, _ = await database.read(batches.listed, None, 10)
    assert [batch.id for batch in found] == ["batch_going"]
    database.close()
