"""docs/concepts/batches.md: a database that is away at the start or in the middle is waited for, and nothing is lost."""

import asyncio
import os
import threading
import time
from pathlib import Path

import httpx
import openai
import psycopg
import pytest

from batch.tests.inputs import lines
from batch.tests.postgres import PASSWORD, Server
from batch.tests.running import Process, answering, ended, rows, service, submit
from batch.tests.upstream import serve_upstream
from llmendpoint_batch.__main__ import DATABASE_URL, make_parser, read_settings
from llmendpoint_batch.errors import BadUrl, InUse, StorageAway, StorageFull
from llmendpoint_batch.store.chunks import CHUNK, Chunks
from llmendpoint_batch.store.connection import Connection
from llmendpoint_batch.store.postgres import Postgres


async def ready(process: Process) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        while True:
            try:
                return await client.get(f"{process.state_url}/readyz")
            except httpx.ConnectError:
                await asyncio.sleep(0.01)


async def becomes(process: Process, status: int, said: str = "") -> str:
    """What /readyz says once it has this status and these words."""
    async with asyncio.timeout(20):
        while True:
            answer = await ready(process)
            if answer.status_code == status and said in answer.text:
                return answer.text
            await asyncio.sleep(0.05)


async def test_a_database_that_is_away_at_the_start_is_waited_for(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_database()
    postgres.stop()
    async with (
        serve_upstream() as upstream,
        service(tmp_path, upstream.url, database=url, wait=False) as process,
    ):
        await becomes(process, 503, "cannot be reached")
        postgres.start()
        await becomes(process, 200)
        batch = await submit(process.client, lines(["one"]))
        assert (await ended(process.client, batch.id)).status == "completed"


async def test_a_database_that_goes_away_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, postgres: Server
) -> None:
    ids = [f"{n}" for n in range(120)]
    url = postgres.new_database()
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        upstream.seconds = 0.03
        batch = await submit(process.client, lines(ids))
        for _ in range(3):
            await asyncio.sleep(0.15)
            postgres.stop()
            await becomes(process, 503, "connection")
            with pytest.raises(openai.InternalServerError, match="database of the batch service") as caught:
                await process.client.batches.retrieve(batch.id)
            assert caught.value.status_code == 503
            assert caught.value.code == "database_unavailable"
            assert caught.value.response.headers["retry-after"] == "2"
            with pytest.raises(openai.InternalServerError, match="database of the batch service"):
                await process.client.files.create(file=lines(["x"]), purpose="batch")
            postgres.start()
            await becomes(process, 200)
        batch = await ended(process.client, batch.id)
        good = await rows(process.client, batch.output_file_id)
        assert [row["custom_id"] for row in good] == ids
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 120


async def test_background_responses_outlive_a_database_that_goes_away(
    tmp_path: Path, postgres: Server
) -> None:
    url = postgres.new_database()
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        upstream.seconds = 0.3
        client = process.client
        made = [
            (await client.responses.create(model="m", input=f"n-{n}", background=True)).id for n in range(24)
        ]
        for _ in range(2):
            await asyncio.sleep(0.2)
            postgres.stop()
            await becomes(process, 503, "connection")
            with pytest.raises(openai.InternalServerError, match="database of the batch service"):
                await client.responses.create(model="m", input="x")
            assert (await client.responses.create(model="m", input="x", store=False)).output_text == "1 x"
            postgres.start()
            await becomes(process, 200)
        async with asyncio.timeout(30):
            for n, response_id in enumerate(made):
                while (found := await client.responses.retrieve(response_id)).status != "completed":
                    assert found.status in ("queued", "in_progress")
                    await asyncio.sleep(0.05)
                assert found.output_text == f"1 {f'n-{n}'[::-1]}"


async def test_large_files_come_back_as_they_were(tmp_path: Path, postgres: Server) -> None:
    url = postgres.new_database()
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        content = b"".join(os.urandom(500).replace(b"\n", b"x") + b"\n" for _ in range(6000))
        file = await process.client.files.create(file=content, purpose="batch")
        assert file.bytes == len(content) > 2 * CHUNK
        assert (await process.client.files.content(file.id)).content == content
        await process.client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            await process.client.files.content(file.id)


def test_any_part_of_a_file_can_be_read(postgres: Server) -> None:
    url = postgres.new_database()
    Postgres(url).write(lambda connection: connection.execute("SELECT 1"))
    chunks, content = Chunks(url), os.urandom(2 * CHUNK + 1000)
    writing = chunks.begin("file-a")
    writing.write(content)
    writing.keep()
    for offset, length in (
        (0, 10),
        (CHUNK - 5, 10),
        (CHUNK, 1),
        (5, 2 * CHUNK),
        (2 * CHUNK, 5000),
        (3 * CHUNK, 9),
        (7, 0),
    ):
        assert chunks.read("file-a", offset, length) == content[offset : offset + length]
    with chunks.open("file-a") as file:
        assert file.read() == content
    assert chunks.sweep(()) == 1, "it has no row"
    chunks.close()


def test_a_second_process_waits_and_one_that_lost_the_database_ends(postgres: Server) -> None:
    url = postgres.new_database()
    first, second = Postgres(url), Postgres(url)
    touch = lambda connection: connection.execute("SELECT 1")  # noqa: E731
    first.write(touch)
    with pytest.raises(StorageAway, match="another process serves"):
        second.write(touch)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    time.sleep(0.2)
    second.write(touch)
    with pytest.raises(StorageAway, match="another process serves"):
        first.write(touch)
    second.close()
    time.sleep(0.5)
    with pytest.raises(InUse, match="has served from this database meanwhile"):
        first.write(touch)
    first.close()


def test_a_transaction_whose_connection_breaks_is_run_again_whole(postgres: Server) -> None:
    url = postgres.new_database()
    backend, tries = Postgres(url), 0

    def do(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.execute("INSERT INTO clock (id, age, wall) VALUES (1, ?, 0)", (float(tries),))
        if tries == 1:
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                )
        connection.execute("SELECT 1")

    backend.write(do)
    assert backend.read(lambda connection: connection.execute("SELECT age FROM clock").fetchall()) == [(2.0,)]
    backend.close()


def test_a_database_that_hangs_counts_as_away(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_batch.store.postgres.SILENT_SECONDS", 0.2)
    backend = Postgres(postgres.new_database())
    seen: list[str] = []

    def look() -> None:
        time.sleep(0.6)
        seen.append(backend.away)

    looking = threading.Thread(target=look)
    looking.start()
    backend.write(lambda connection: connection.execute("SELECT pg_sleep(1)"))
    looking.join()
    assert "has not answered" in seen[0]
    assert backend.away == ""
    backend.close()


def test_a_full_database_is_told_as_a_full_disk(postgres: Server) -> None:
    backend = Postgres(postgres.new_database())
    raising = "DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100'', MESSAGE = ''could not extend file''; END'"
    with pytest.raises(StorageFull, match="could not extend file"):
        backend.write(lambda connection: connection.execute(raising))
    backend.close()


@pytest.mark.parametrize(
    "url",
    ["mysql://u:topsecret@h/d", "postgresql//u:topsecret@h", "postgresql://u:topsecret@h:5432/d?sslmode", "topsecret",
     "postgresql://u:topsecret%zz@h/d", "postgresql://[::1:topsecret"],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(BadUrl, match="is not of the form") as caught:
        Postgres(url)
    assert "topsecret" not in str(caught.value)
    settings = read_settings(make_parser().parse_args(["--gateway", "http://g"]), {DATABASE_URL: url})
    assert "topsecret" not in repr(settings)


async def test_no_log_has_the_password(tmp_path: Path, postgres: Server) -> None:
    url, said = postgres.new_database(), tmp_path / "log"
    wrong = url.replace(PASSWORD, "othersecret")
    with said.open("wb") as log:
        async with serve_upstream() as upstream:
            async with service(tmp_path, upstream.url, log=log.fileno(), database=url) as process:
                await answering(process)
            async with service(
                tmp_path, upstream.url, log=log.fileno(), database=wrong, wait=False
            ) as process:
                told = await becomes(process, 503, "password authentication failed")
    whole = said.read_text() + told
    assert "started" in whole
    assert "waits for the database" in whole
    assert "secret" not in whole
