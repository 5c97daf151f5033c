"""docs/concepts/batches.md: the `openai` SDK uploads a file in parts, with bounds, and abandoned uploads go."""

import asyncio
import hashlib
import os
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psycopg
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from batch.tests.inputs import lines
from batch.tests.running import Process, answering, ended, rows, service
from batch.tests.upstream import serve_upstream
from llmendpoint_batch.api import receiving
from llmendpoint_batch.api.app import make_api
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core.records import File
from llmendpoint_batch.core.uploads import Part, Upload
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import files, uploads
from llmendpoint_batch.store.blobs import write_lines
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.store.sqlite import Sqlite
from llmendpoint_batch.work.background import Background
from llmendpoint_batch.work.housekeeping import clean
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times

SMALL = ("--file-mib", "1", "--storage-mib", "3", "--lines", "2000", "--line-kib", "8")
CONTENT = lines([f"n-{n}" for n in range(60)])
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Process]:
    url = request.getfixturevalue("postgres").new_database() if request.param == "postgres" else ""
    data = tmp_path_factory.mktemp("data")
    async with serve_upstream() as upstream, service(data, upstream.url, *SMALL, database=url) as process:
        yield process


async def begin(client: openai.AsyncOpenAI, size: int = len(CONTENT)) -> str:
    made = await client.uploads.create(
        bytes=size, filename="in.jsonl", mime_type="application/jsonl", purpose="batch"
    )
    assert made.status == "pending"
    return made.id


async def part(client: openai.AsyncOpenAI, upload_id: str, data: bytes) -> str:
    return (await client.uploads.parts.create(upload_id, data=data)).id


async def test_a_file_comes_in_parts_and_is_read_by_a_batch(stage: Process) -> None:
    client = stage.client
    done = await client.uploads.upload_file_chunked(
        file=CONTENT, filename="in.jsonl", bytes=len(CONTENT), mime_type="application/jsonl", purpose="batch",
        part_size=1000, md5=hashlib.md5(CONTENT).hexdigest(),
    )  # fmt: skip
    assert done.status == "completed"
    assert done.file is not None
    assert (await client.files.content(done.file.id)).content == CONTENT
    batch = await client.batches.create(
        input_file_id=done.file.id, endpoint="/v1/completions", completion_window="24h"
    )
    batch = await ended(client, batch.id)
    assert len(await rows(client, batch.output_file_id)) == 60


async def test_the_order_is_that_of_the_completion(stage: Process) -> None:
    client = stage.client
    upload_id = await begin(client)
    second, first = await part(client, upload_id, CONTENT[900:]), await part(client, upload_id, CONTENT[:900])
    done = await client.uploads.complete(upload_id, part_ids=[first, second])
    assert done.file is not None
    assert (await client.files.content(done.file.id)).content == CONTENT
    with pytest.raises(openai.BadRequestError, match="is completed") as caught:
        await client.uploads.complete(upload_id, part_ids=[first, second])
    assert caught.value.code == "upload_not_pending"


async def test_a_cancelled_upload_takes_no_parts(stage: Process) -> None:
    client = stage.client
    upload_id = await begin(client)
    await part(client, upload_id, CONTENT[:100])
    assert (await client.uploads.cancel(upload_id)).status == "cancelled"
    assert (await client.uploads.cancel(upload_id)).status == "cancelled", "a second cancel changes nothing"
    with pytest.raises(openai.BadRequestError, match="is cancelled"):
        await part(client, upload_id, CONTENT[100:])


async def test_what_does_not_fit_together_is_refused_and_can_be_mended(stage: Process) -> None:
    client = stage.client
    upload_id = await begin(client)
    first = await part(client, upload_id, CONTENT[:900])
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"part_ids": [first]}, "part_ids", "was begun with"),
        ({"part_ids": []}, "part_ids", "a list of 1"),
        ({"part_ids": [first, first]}, "part_ids[1]", "named once"),
        ({"part_ids": ["part_x"]}, "part_ids[0]", "no part of"),
        ({"part_ids": [first], "md5": "x"}, "md5", "32 hexadecimal"),
    ]
    for given, param, said in cases:
        with pytest.raises(openai.BadRequestError, match=said) as caught:
            await client.uploads.complete(upload_id, **given)
        assert caught.value.param == param
    with pytest.raises(openai.BadRequestError, match="more than the bytes of the upload"):
        await part(client, upload_id, CONTENT)
    second = await part(client, upload_id, CONTENT[900:])
    with pytest.raises(openai.BadRequestError, match="MD5"):
        await client.uploads.complete(upload_id, part_ids=[first, second], md5="0" * 32)
    assert (await client.uploads.complete(upload_id, part_ids=[first, second])).status == "completed"


async def test_bounds_of_files_hold_for_what_comes_in_parts(stage: Process) -> None:
    client = stage.client
    content = b"x" * 9000
    upload_id = await begin(client, len(content))
    ids = [await part(client, upload_id, content[:5000]), await part(client, upload_id, content[5000:])]
    with pytest.raises(openai.BadRequestError, match="is longer than") as caught:
        await client.uploads.complete(upload_id, part_ids=ids)
    assert caught.value.code == "line_too_long"
    await client.uploads.cancel(upload_id)


async def test_parts_count_into_what_all_files_may_take(stage: Process) -> None:
    client, begun = stage.client, list[str]()

    async def fill() -> None:
        for _ in range(5):
            begun.append(await begin(client, 1 << 20))
            await part(client, begun[-1], b"x" * (1 << 20))

    with pytest.raises(openai.APIStatusError, match="bytes, and this one is too much") as caught:
        await fill()
    assert (caught.value.status_code, caught.value.code) == (413, "storage_quota_exceeded")
    for upload_id in begun:
        await client.uploads.cancel(upload_id)
    again = await begin(client, 1 << 20)
    await part(client, again, b"x" * (1 << 20))
    await client.uploads.cancel(again)


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"bytes": 0}, "bytes"), ({"bytes": (1 << 20) + 1}, "bytes"), ({"bytes": True}, "bytes"), ({"bytes": None}, "bytes"),
        ({"filename": ""}, "filename"), ({"filename": None}, "filename"), ({"mime_type": 7}, "mime_type"),
        ({"purpose": "assistants"}, "purpose"), ({"purpose": None}, "purpose"), ({"purpose": 7}, "purpose"),
        ({"expires_after": {}}, "expires_after"),
    ],
)  # fmt: skip
async def test_an_upload_that_cannot_be_begun_names_the_field(
    stage: Process, changed: dict[str, Any], param: str
) -> None:
    body = {"bytes": 10, "filename": "f", "mime_type": "text/plain", "purpose": "batch"} | changed
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{stage.url}/v1/uploads", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"content": b"x"}, 415, "must be a form"),
        ({"files": {"other": b"x"}}, 400, "Unknown field"),
        ({"files": {"data": b""}}, 400, "is empty"),
        ({"data": {"purpose": "batch"}, "files": {"data": b"x"}}, 400, "Unknown field"),
    ],
)
async def test_a_part_that_is_none_is_refused(
    stage: Process, given: dict[str, Any], status: int, said: str
) -> None:
    upload_id = await begin(stage.client)
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{stage.url}/v1/uploads/{upload_id}/parts", **given)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    await stage.client.uploads.cancel(upload_id)


async def test_nobodys_upload_is_not_found(stage: Process) -> None:
    client = stage.client
    with pytest.raises(openai.NotFoundError):
        await part(client, "upload_x", b"x")
    with pytest.raises(openai.NotFoundError):
        await client.uploads.complete("upload_x", part_ids=["a"])
    with pytest.raises(openai.NotFoundError):
        await client.uploads.cancel("upload_x")


async def test_abandoned_uploads_and_their_bytes_go(tmp_path: Path) -> None:
    database, folder, times = Database(Sqlite(tmp_path / "db")), Folder(tmp_path), Times(None)
    for name, deadline in (("old", -1.0), ("new", 1e9)):
        write_lines(folder, f"part_{name}", [b"x"])
        await database.write(
            uploads.create, Upload(f"upload_{name}", "pending", "f", 2, 0, 0, deadline), 1 << 20
        )
        await database.write(uploads.add_part, f"upload_{name}", Part(f"part_{name}", 2), 1 << 20)
    assert folder.sweep(await database.read(files.ids)) == 0, "parts are no leftovers"
    await clean(database, folder, times, Metrics())
    assert (await database.read(uploads.get, "upload_old")).status == "expired"
    assert await database.read(files.ids) == {"part_new"}
    assert os.listdir(folder.files) == ["part_new"]
    database.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_upload_is_completed_once_or_not_though_the_service_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    url = request.getfixturevalue("postgres").new_database() if kind == "postgres" else ""
    chance, content = random.Random(3), CONTENT * 20
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        for _ in range(8):
            client = process.client
            upload_id = await begin(client, len(content))
            ids = [
                await part(client, upload_id, content[at : at + 40_000])
                for at in range(0, len(content), 40_000)
            ]
            completing = asyncio.create_task(client.uploads.complete(upload_id, part_ids=ids))
            await asyncio.sleep(chance.uniform(0, 0.03))
            await process.kill()
            await asyncio.gather(completing, return_exceptions=True)
            await process.start()
            await answering(process)
            try:
                await process.client.uploads.complete(upload_id, part_ids=ids)
            except openai.BadRequestError as error:
                assert error.code == "upload_not_pending"  # noqa: PT017
        found = [file.id async for file in await process.client.files.list()]
        assert len(found) == 8
        for file_id in found:
            assert (await process.client.files.content(file_id)).content == content
        if url:
            with psycopg.connect(url) as connection:
                sql = b"SELECT DISTINCT file FROM llmendpoint_batch.chunks"
                kept = {row[0] for row in connection.execute(sql).fetchall()}
        else:
            kept = set(os.listdir(tmp_path / "files"))
        assert kept == set(found)


class Slow(Folder):
    """Its reads wait until they may go on."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def read(self, file_id: str, offset: int, length: int) -> bytes:
        self.asked.set()
        assert self.go_on.wait(20)
        return super().read(file_id, offset, length)


@pytest.mark.parametrize("other", ["cancel", "complete"])
async def test_an_upload_that_ends_otherwise_while_it_is_put_together_is_refused(
    tmp_path: Path, other: str
) -> None:
    """Its parts are deleted under the reader."""
    settings, times, metrics, blobs = (
        Settings(tmp_path, "http://127.0.0.1:9"),
        Times(None),
        Metrics(),
        Slow(tmp_path),
    )
    database, sender = Database(Sqlite(tmp_path / "rows")), Sender(settings.gateway, 1)
    background = Background(database, sender, times, settings, metrics)
    served = Service(database, blobs, sender, background, times, settings, lambda: None)
    async with (
        TestServer(make_api(served)) as server,
        openai.AsyncOpenAI(base_url=str(server.make_url("/v1")), api_key="none", max_retries=0) as client,
    ):
        upload_id = await begin(client)
        parts = [await part(client, upload_id, CONTENT)]
        completing = asyncio.create_task(client.uploads.complete(upload_id, part_ids=parts))
        await asyncio.to_thread(blobs.asked.wait, 20)
        if other == "cancel":
            ended = await client.uploads.cancel(upload_id)
        else:
            file = File("file-1", "in.jsonl", "batch", len(CONTENT), 0, 0, 1e9)
            ended, _ = await database.write(uploads.complete, upload_id, file)
            await asyncio.to_thread(blobs.remove, parts[0])
        blobs.go_on.set()
        with pytest.raises(openai.BadRequestError, match=f"is {ended.status}") as refused:
            await completing
        assert refused.value.code == "upload_not_pending"
        assert not any(path.name.startswith("file-") for path in (tmp_path / "files").iterdir())
    database.close()


async def test_of_completing_and_cancelling_at_once_one_wins(stage: Process) -> None:
    client, ends = stage.client, list[str]()
    for _ in range(12):
        upload_id = await begin(client)
        parts = [await part(client, upload_id, CONTENT)]
        both: Any = [client.uploads.complete(upload_id, part_ids=parts), client.uploads.cancel(upload_id)]
        if len(ends) % 2:
            both.reverse()
        found = await asyncio.gather(*both, return_exceptions=True)
        [won] = [one for one in found if not isinstance(one, BaseException)]
        [lost] = [one for one in found if isinstance(one, BaseException)]
        assert isinstance(lost, openai.BadRequestError)
        assert lost.code == "upload_not_pending"
        ends.append(won.status)
        if won.file is not None:
            assert (await client.files.content(won.file.id)).content == CONTENT
            await client.files.delete(won.file.id)
    assert len(ends) == 12


async def test_who_sends_a_byte_now_and_then_keeps_no_place_that_another_upload_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "AT_A_TIME", 2)
    monkeypatch.setattr(receiving, "SLOW_AFTER_SECONDS", 0.5)
    settings, times, metrics = Settings(tmp_path, "http://127.0.0.1:9"), Times(None), Metrics()
    database, sender = Database(Sqlite(tmp_path / "rows")), Sender(settings.gateway, 1)
    background = Background(database, sender, times, settings, metrics)
    served = Service(database, Folder(tmp_path), sender, background, times, settings, lambda: None)
    form = {"files": {"file": ("in.jsonl", CONTENT)}, "data": {"purpose": "batch"}}
    async with TestServer(make_api(served)) as server, httpx.AsyncClient() as client:
        url = str(server.make_url("/v1/files"))
        request = client.build_request("POST", url, **form)
        body = request.read()

        async def slowly() -> AsyncIterator[bytes]:
            for at in range(len(body) - 20):
                yield body[at : at + 1]
                await asyncio.sleep(0.01)

        headers = {"content-type": request.headers["content-type"]}
        slow = [asyncio.create_task(client.post(url, content=slowly(), headers=headers)) for _ in range(2)]
        await asyncio.sleep(0.2)
        assert (await client.post(url, **form)).status_code == 429, "they may yet become faster"
        await asyncio.sleep(0.5)
        assert (await client.post(url, **form)).status_code == 200
        assert (await client.post(url, **form)).status_code == 200
        for task in slow:
            task.cancel()
    database.close()
