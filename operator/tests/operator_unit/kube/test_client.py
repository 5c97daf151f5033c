"""docs/decisions/kopf-for-little.md: an answer of the API server that breaks off fails its call alone, and the pass is repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from llmendpoint_operator.errors import ApiError
from llmendpoint_operator.kube import client, resources
from llmendpoint_operator.kube.client import Credentials, KubeApi, as_go_writes

HEAD = "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Server:
    """Answers every request with this, and closes or keeps the connection."""

    answer = b""
    closes = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        await writer.drain()
        if not self.closes:
            await reader.read()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, KubeApi]]:
    played = Server()
    listening = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    host = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"

    async def token() -> None:
        return None

    credentials = SimpleNamespace(host=host, token=token, ssl_context=lambda: True)
    async with KubeApi(cast(Credentials, credentials)) as api:
        yield played, api
    listening.close()


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize(
    ("length", "body", "closes"),
    [(100, '{"items": [', True), (100, '{"items": [', False), (3, "{,}", True), (2, "\xff\xff", True)],
    ids=["it breaks off", "it stands still", "it is no JSON", "it is no text"],
)
async def test_an_answer_that_is_not_whole_is_an_api_error(
    server: tuple[Server, KubeApi], monkeypatch: pytest.MonkeyPatch,
    status: int, length: int, body: str, closes: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.2)
    played, api = server
    played.answer, played.closes = (HEAD.format(status, length) + body).encode("latin-1"), closes
    with pytest.raises(ApiError, match="GET /api/v1/namespaces/llm/pods"):
        await api.list(resources.PODS, "llm")


async def test_a_whole_answer_is_read(server: tuple[Server, KubeApi]) -> None:
    played, api = server
    played.answer = (HEAD.format(200, 13) + '{"items": []}').encode()
    assert await api.list(resources.PODS, "llm") == {"items": []}


def test_json_is_written_as_the_api_server_writes_it() -> None:
    body = {"n": 1, "args": ["--a=<b>&c", "d: é\u2028"]}
    assert as_go_writes(body) == '{"args":["--a=\\u003cb\\u003e\\u0026c","d: é\\u2028"],"n":1}'
    assert json.loads(as_go_writes(body)) == body
