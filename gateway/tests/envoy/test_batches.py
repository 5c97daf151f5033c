"""docs/concepts/batches.md: /v1/files and /v1/batches go to the batch service, streamed, and wait while it starts anew."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.uploads import MIB
from tests.ports import free_port

PORT = free_port()


@pytest.fixture(scope="module")
def with_batches() -> Iterator[Gateway]:
    with running_gateway(batch_service=f"127.0.0.1:{PORT}") as running:
        yield running


@asynccontextmanager
async def batch_service() -> AsyncIterator[list[dict[str, object]]]:
    """It tells what it was asked."""
    asked: list[dict[str, object]] = []

    async def answer(request: web.Request) -> web.Response:
        size = 0
        async for data in request.content.iter_any():
            size += len(data)
        asked.append({"path": request.path_qs, "size": size, "headers": set(request.headers)})
        return web.json_response({"id": "x"})

    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", answer)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT, reuse_address=True).start()
    try:
        yield asked
    finally:
        await runner.cleanup()


async def test_an_upload_above_the_limit_of_bodies_is_streamed(with_batches: Gateway) -> None:
    def allocated() -> int:
        return int(json.loads(with_batches.admin("/memory"))["allocated"])

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(48):
            yield b"x" * MIB
            most.append(await asyncio.to_thread(allocated))

    most: list[int] = []
    async with batch_service() as asked, httpx.AsyncClient(base_url=with_batches.url, timeout=60) as client:
        before = allocated()
        headers = {"authorization": "Bearer secret", "content-length": str(48 * MIB)}
        answer = await client.post("/v1/files", content=pieces(), headers=headers)
        assert answer.json() == {"id": "x"}
        assert asked[0]["size"] == 48 * MIB
        assert "Authorization" not in str(asked[0]["headers"])
        assert max(most) - before < 16 * MIB


@pytest.fixture(scope="module")
def impatient() -> Iterator[Gateway]:
    """A gateway with other times: for requests, for uploads, and for an upload that stands still."""
    times = {"REQUEST_TIMEOUT": "1s", "UPLOAD_TIMEOUT": "5s", "UPLOAD_IDLE_TIMEOUT": "2s"}
    with running_gateway(batch_service=f"127.0.0.1:{PORT}", **times) as running:
        yield running


async def slow_upload(gateway: Gateway, pieces: int, pause: float) -> tuple[int, Any]:
    """The answer; what was not sent before it is not sent any more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)

    async def send() -> None:
        writer.write(
            f"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: {1000 * pieces}\r\n\r\n".encode()
        )
        for _ in range(pieces):
            writer.write(b"x" * 1000)
            await asyncio.sleep(pause)

    sending = asyncio.create_task(send())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
    sending.cancel()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    answer = json.loads(await reader.readexactly(length))
    writer.close()
    return int(head.split()[1]), answer


async def test_an_upload_may_take_longer_than_a_request(impatient: Gateway) -> None:
    """200 MiB had 60 s, which is 28 Mbit/s."""
    async with batch_service() as asked:
        assert await slow_upload(impatient, 6, 0.5) == (200, {"id": "x"})
        assert asked[0]["size"] == 6000


@pytest.mark.parametrize(("pieces", "pause"), [(2, 4.0), (40, 0.5)])
async def test_an_upload_that_stands_still_or_never_ends_is_answered_with_408(
    impatient: Gateway, pieces: int, pause: float
) -> None:
    async with batch_service() as asked:
        status, answer = await slow_upload(impatient, pieces, pause)
        assert (status, answer["error"]["code"]) == (408, "request_timeout")
        assert "stood still for 2s" in answer["error"]["message"]
        assert not asked


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/files?limit=2"),
        ("DELETE", "/v1/files/file-1"),
        ("GET", "/v1/files/file-1/content"),
        ("POST", "/v1/uploads"),
        ("POST", "/v1/uploads/upload_1/parts"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/batches/batch_1/cancel"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/resp_1?include=x"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/v1/responses/resp_1/input_items?limit=2"),
    ],
)
async def test_every_path_of_the_service_passes(with_batches: Gateway, method: str, path: str) -> None:
    async with batch_service() as asked, httpx.AsyncClient(base_url=with_batches.url) as client:
        assert (await client.request(method, path)).status_code == 200
        assert asked[0]["path"] == path


async def test_a_request_waits_while_the_service_starts_anew(with_batches: Gateway) -> None:
    async with httpx.AsyncClient(base_url=with_batches.url, timeout=30) as client:
        async with batch_service():
            assert (await client.get("/v1/batches")).status_code == 200
        asking = asyncio.create_task(client.get("/v1/batches"))
        await asyncio.sleep(0.7)
        assert not asking.done()
        async with batch_service():
            assert (await asking).status_code == 200


async def test_a_service_that_stays_away_is_told_of(with_batches: Gateway) -> None:
    async with httpx.AsyncClient(base_url=with_batches.url, timeout=60) as client:
        answers = await asyncio.gather(client.get("/v1/files"), client.get("/v1/responses/resp_1"))
    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert answer.json()["error"]["code"] == "batch_service_unavailable"


async def test_the_services_own_requests_for_responses_reach_endpoints_and_not_the_service(
    with_batches: Gateway,
) -> None:
    async with batch_service() as asked, httpx.AsyncClient(base_url=with_batches.url) as client:
        body = {"model": "nobody", "input": "x"}
        answer = await client.post("/v1/responses", json=body, headers={"x-llmendpoint-responses": "direct"})
        assert answer.json()["error"]["code"] == "model_not_found", "the picker looked for the endpoint"
        large = {"model": "nobody", "input": "x" * 100_000}
        answer = await client.post("/v1/responses", json=large, headers={"x-llmendpoint-responses": "direct"})
        assert answer.json()["error"]["code"] == "model_not_found"
        assert asked == []
        await client.post("/v1/responses", json=large, headers={"x-llmendpoint-responses": "other"})
        assert [one["path"] for one in asked] == ["/v1/responses"]


async def test_without_the_service_an_endpoint_answers_responses(gateway: Gateway) -> None:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        answer = await client.post("/v1/responses", json={"model": "nobody", "input": "x"})
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "path", ["/v1/files", "/v1/batches/batch_1", "/v1/files?purpose=batch", "/v1/responses/resp_1"]
)
async def test_without_the_service_the_answer_says_so(gateway: Gateway, path: str) -> None:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert "batch.enabled" in answer.json()["error"]["message"]
