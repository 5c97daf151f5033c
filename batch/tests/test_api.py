"""docs/concepts/batches.md: the `openai` SDK uploads, makes batches and reads results, and a refusal names the field."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
import pytest_asyncio

from batch.tests.inputs import line, lines
from batch.tests.running import Process, ended, rows, service, submit
from batch.tests.upstream import Upstream, serve_upstream

SMALL = ("--file-mib", "1", "--storage-mib", "2", "--lines", "200", "--line-kib", "8", "--concurrency", "4")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Process, Upstream]]:
    async with (
        serve_upstream() as upstream,
        service(tmp_path_factory.mktemp("data"), upstream.url, *SMALL) as process,
    ):
        yield process, upstream


pytestmark = pytest.mark.asyncio(loop_scope="module")
Stage = tuple[Process, Upstream]


async def test_a_batch_from_the_file_to_the_results(stage: Stage) -> None:
    process, upstream = stage
    client = process.client
    ids = [f"a-{n}" for n in range(60)] + ["a-bad"]
    batch = await submit(client, lines(ids), metadata={"team": "red"})
    assert batch.status == "validating"
    batch = await ended(client, batch.id)
    assert batch.status == "completed"
    assert batch.metadata == {"team": "red"}
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 61, "completed": 60, "failed": 1}
    good, bad = await rows(client, batch.output_file_id), await rows(client, batch.error_file_id)
    assert [row["custom_id"] for row in good] == ids[:60], "the order of the input"
    assert good[7]["response"]["body"]["choices"][0]["text"] == "7-a"
    assert bad[0]["response"]["status_code"] == 400
    assert bad[0]["response"]["body"]["error"]["code"] == "invalid_value"
    assert {headers["x-llmendpoint-priority"] for headers in upstream.headers} == {"low"}
    assert upstream.most <= 4


async def test_lists_are_cut_into_pages(stage: Stage) -> None:
    client = stage[0].client
    made = [
        (await client.files.create(file=(f"{n}.jsonl", lines(["x"])), purpose="batch")).id for n in range(3)
    ]
    page = await client.files.list(limit=2, purpose="batch", order="desc")
    assert [file.id for file in page.data] == made[:0:-1]
    assert page.has_more
    following = await page.get_next_page()
    assert following.data[0].id == made[0]
    ours = [batch.id async for batch in await client.batches.list(limit=1)]
    assert len(ours) == len(set(ours)) >= 1


async def test_a_deleted_file_is_gone_and_one_in_use_is_not_deleted(stage: Stage) -> None:
    process, upstream = stage
    client = process.client
    upstream.seconds = 5
    batch = await submit(client, lines(["slow"]))
    async with asyncio.timeout(10):
        while batch.status == "validating":
            batch = await client.batches.retrieve(batch.id)
    with pytest.raises(openai.BadRequestError, match=f"batch {batch.id} reads this file") as caught:
        await client.files.delete(batch.input_file_id)
    assert caught.value.code == "file_in_use"
    assert (await client.batches.cancel(batch.id)).status == "cancelling"
    upstream.seconds = 0
    batch = await ended(client, batch.id)
    assert batch.status == "cancelled"
    [row] = await rows(client, batch.error_file_id)
    assert row["error"]["code"] == "batch_cancelled"
    assert (await client.files.delete(batch.input_file_id)).deleted
    with pytest.raises(openai.NotFoundError, match="No such file"):
        await client.files.content(batch.input_file_id)
    assert (await client.batches.cancel(batch.id)).status == "cancelled", "a second cancel changes nothing"


async def test_a_batch_that_has_ended_is_not_cancelled(stage: Stage) -> None:
    client = stage[0].client
    batch = await ended(client, (await submit(client, lines(["one"]))).id)
    with pytest.raises(openai.BadRequestError, match=r"is completed\. Only"):
        await client.batches.cancel(batch.id)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"\n\n", "empty_file", "no line"),
        (b"{\n", "invalid_json_line", "not a JSON object"),
        (b"[1]\n", "invalid_json_line", "not a JSON object"),
        (b"[" * 7000, "invalid_json_line", "not a JSON object"),
        (b'{"custom_id": "\xff"}', "invalid_json_line", "not a JSON object"),
        (line("", "x").encode(), "invalid_custom_id", "1 to 512 characters"),
        (line("x" * 513, "x").encode(), "invalid_custom_id", "1 to 512 characters"),
        (line("a", custom_id=7).encode(), "invalid_custom_id", "got 7"),
        (lines(["a", "b", "a"]), "duplicate_custom_id", "line 1, too"),
        (line("a", method="GET").encode(), "invalid_method", 'must be "POST"'),
        (line("a", url="/v1/embeddings").encode(), "mismatched_url", '"/v1/completions"'),
        (line("a", body=[1]).encode(), "invalid_body", "must be an object"),
        (line("a", body={"prompt": "x"}).encode(), "missing_model", "it is missing"),
        (line("a", body={"model": "m", "stream": True}).encode(), "invalid_stream", "got true"),
        ((line("a") + "\n" + line("b", model="n")).encode(), "mismatched_model", "one model"),
    ],
)
async def test_a_file_with_a_bad_line_fails_its_batch_and_says_which(
    stage: Stage, content: bytes, code: str, said: str
) -> None:
    client = stage[0].client
    batch = await ended(client, (await submit(client, content)).id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data
    fault = batch.errors.data[0]
    assert fault.code == code
    assert said in str(fault.message)
    assert batch.output_file_id is None


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ([], None, "must be a JSON object"),
        ({}, "input_file_id", "is missing"),
        ({"input_file_id": 7}, "input_file_id", "must be"),
        ({"input_file_id": "file-x"}, "endpoint", "is missing"),
        ({"input_file_id": "f", "endpoint": "/v1/files"}, "endpoint", "must be one of /v1/chat/completions"),
        ({"input_file_id": "f", "endpoint": "/v1/completions"}, "completion_window", "is missing"),
        ({"completion_window": "8d"}, "completion_window", 'from "1m" to "7d"'),
        ({"completion_window": "0h"}, "completion_window", 'from "1m" to "7d"'),
        ({"completion_window": "99999999999h"}, "completion_window", 'from "1m" to "7d"'),
        ({"completion_window": "24h"}, "id", "No such file"),
        ({"completion_window": "24h", "metadata": {"a": 1}}, "metadata.a", "at most 512"),
        ({"metadata": {str(n): "" for n in range(17)}, "completion_window": "1h"}, "metadata", "at most 16"),
        ({"output_expires_after": {}}, "output_expires_after", "Unknown parameter"),
    ],
)
async def test_a_batch_that_cannot_be_made_names_the_field(
    stage: Stage, body: object, param: str | None, said: str
) -> None:
    whole = {"input_file_id": "file-x", "endpoint": "/v1/completions"}
    if isinstance(body, dict) and body.keys() & {"completion_window", "metadata", "output_expires_after"}:
        body = whole | body
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{stage[0].url}/v1/batches", json=body)
    assert response.status_code in (400, 404)
    error = response.json()["error"]
    assert error["param"] == param
    assert said in error["message"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"x\n" * 201, 400, "too_many_lines"),
        (b"x" * 9000, 400, "line_too_long"),
        (b"y\n" + b"x" * 8200, 400, "line_too_long"),
        ((b"x" * 8000 + b"\n") * 135, 413, "file_too_large"),
    ],
)
async def test_an_upload_beyond_a_bound_is_refused_and_leaves_nothing(
    stage: Stage, content: bytes, status: int, code: str
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await stage[0].client.files.create(file=content, purpose="batch")
    assert caught.value.status_code == status
    assert caught.value.code == code
    assert list((Path(stage[0].arguments[1]) / "new").iterdir()) == []


async def test_all_files_together_have_a_bound(stage: Stage) -> None:
    client = stage[0].client
    large = b"\n".join(b"x" * 8000 for _ in range(120))
    made: list[str] = []

    async def fill() -> None:
        while len(made) < 4:
            made.append((await client.files.create(file=large, purpose="batch")).id)

    with pytest.raises(openai.APIStatusError, match="2097152 bytes") as caught:
        await fill()
    assert caught.value.status_code == 413
    for file_id in made:
        await client.files.delete(file_id)
    assert (await client.files.create(file=large, purpose="batch")).bytes == len(large)


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"data": b"x", "headers": {"content-type": "text/plain"}}, 415, "must be a form"),
        ({"data": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "must be a form"),
        (
            {"data": b"garbage\r\n" * 999, "headers": {"content-type": "multipart/form-data; boundary=a"}},
            400,
            "must be a form",
        ),
        ({"files": {"file": b"x"}}, 400, "purpose is missing"),
        ({"files": {"file": b"x"}, "data": {"purpose": "fine-tune"}}, 400, 'must be "batch"'),
        ({"files": {"file": b"x"}, "data": {"purpose": "p" * 200}}, 400, "longer than 100"),
        ({"files": {"other": b"x"}, "data": {"purpose": "batch"}}, 400, "Unknown field"),
        (
            {"files": {"file": b"x"}, "data": {"purpose": "batch", "expires_after[seconds]": "3600"}},
            400,
            "expires",
        ),
        ({"files": [("file", b"x"), ("file", b"y")], "data": {"purpose": "batch"}}, 400, "second file"),
    ],
)
async def test_a_form_that_is_none_is_refused(
    stage: Stage, given: dict[str, object], status: int, said: str
) -> None:
    if isinstance(given.get("data"), bytes):
        given = given | {"content": given["data"]}
        del given["data"]
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{stage[0].url}/v1/files", **given)  # type: ignore[arg-type]
    assert response.status_code == status
    assert said in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/files?limit=0", 400),
        ("GET", "/v1/files?limit=10001", 400),
        ("GET", "/v1/files?limit=%D9%A1", 400),
        ("GET", "/v1/files?after=nobody", 400),
        ("GET", "/v1/files?order=up", 400),
        ("GET", "/v1/batches?after=nobody", 400),
        ("GET", "/v1/batches?limit=101", 400),
        ("GET", "/v1/batches/batch_x", 404),
        ("GET", "/v1/files/..%2F..%2Fbatches.sqlite/content", 404),
        ("DELETE", "/v1/batches/batch_x", 405),
        ("PUT", "/v1/files", 405),
        ("GET", "/v2", 404),
    ],
)
async def test_every_refusal_has_openais_shape(stage: Stage, method: str, path: str, status: int) -> None:
    async with httpx.AsyncClient() as client:
        response = await client.request(method, stage[0].url + path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip", "nonsense"])
@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches", "/v1/batches/x/cancel", "/v1/nothing"])
async def test_a_packed_body_is_refused_before_it_is_unpacked(stage: Stage, path: str, encoding: str) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    headers = {"content-encoding": encoding, "content-type": "multipart/form-data; boundary=b"}
    async with httpx.AsyncClient() as client:
        for body in (bomb, b"no gzip"):
            response = await client.post(stage[0].url + path, content=body, headers=headers)
            assert response.status_code == 415
            assert "content-encoding" in response.json()["error"]["message"].lower()


async def test_a_name_that_is_no_utf8_is_refused_in_openais_shape(stage: Stage) -> None:
    form = b'--b\r\ncontent-disposition: form-data; name="\xff\xed\xa0\x80"\r\n\r\nx\r\n--b--\r\n'
    async with httpx.AsyncClient() as client:
        response = await client.post(
            f"{stage[0].url}/v1/files",
            content=form,
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
    assert response.status_code == 400
    assert "Unknown field" in response.json()["error"]["message"]


async def test_no_form_that_is_broken_anywhere_ends_in_a_server_error(stage: Stage) -> None:
    chance = random.Random(7)
    form = (
        b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
        b'content-disposition: form-data; name="file"; filename="f"\r\ncontent-type: text/plain\r\n\r\n'
        + lines(["x"])
        + b"\r\n--b--\r\n"
    )
    headers, statuses = {"content-type": "multipart/form-data; boundary=b"}, set[int]()
    async with httpx.AsyncClient(base_url=stage[0].url, headers=headers) as client:
        for _ in range(400):
            body = bytearray(form)
            for _ in range(chance.randint(1, 4)):
                at, size = chance.randrange(len(body)), chance.randint(0, 30)
                body[at : at + size] = chance.choice(
                    [b"", b"\r\n", b"--b", b"\0", b"x" * 9000, bytes(body[:40])]
                )
            answer = await client.post("/v1/files", content=bytes(body))
            statuses.add(answer.status_code)
            assert answer.status_code < 500, bytes(body)
    assert statuses >= {200, 400}
    assert list((Path(stage[0].arguments[1]) / "new").iterdir()) == []


async def test_an_upload_that_ends_in_the_middle_leaves_nothing(stage: Stage) -> None:
    process = stage[0]
    before = {file.id async for file in await process.client.files.list()}
    reader, writer = await asyncio.open_connection("127.0.0.1", int(process.url.rpartition(":")[2]))
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
        b"content-length: 100000\r\n\r\n--b\r\ncontent-disposition: form-data; name=file; filename=f\r\n\r\n"
    )
    writer.write(head + b"x\n" * 50)
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    await asyncio.sleep(0.2)
    assert {file.id async for file in await process.client.files.list()} == before
    data = Path(process.arguments[1])
    assert list((data / "new").iterdir()) == []
    assert reader is not None
