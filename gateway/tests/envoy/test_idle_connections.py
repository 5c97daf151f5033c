"""docs/concepts/gateway.md: a connection without a request is kept for long, but closed soon when few connections are left."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager

from gateway.tests.asking import CHAT, until
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.http2_client import Http2Client
from gateway.tests.uploads import body_of, streams

MODELS = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"


@contextmanager
def connections(gateway: Gateway, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """On which this was sent, and an answer read."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", gateway.port), 30))
            if first:
                opened[-1].sendall(first)
                assert opened[-1].recv(65_536).startswith(b"HTTP/1.1 200")
        yield opened
    finally:
        for one in opened:
            one.close()


def closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return not one.recv(65_536)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def in_use(gateway: Gateway) -> int:
    return int(gateway.admin("/stats?filter=^http.openai.downstream_cx_active$").split()[-1])


def served(gateway: Gateway, name: str) -> bool:
    """By a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)) as one:
        one.request("POST", CHAT, json.dumps({"model": f"team/{name}"}))
        return one.getresponse().status == 200


@asynccontextmanager
async def http2_connections(gateway: Gateway, count: int, name: str = "") -> AsyncIterator[None]:
    """`name`: whom each has asked once."""
    async with AsyncExitStack() as opened:
        for _ in range(count):
            one = await opened.enter_async_context(Http2Client(gateway.port))
            if name:
                assert (await one.post(CHAT, body_of(name, 100))).ok
        yield


async def test_one_address_keeps_no_connections_from_others_on_which_it_asks_for_nothing() -> None:
    """They were closed after 620 s, silent ones too, and all others refused for so long."""
    with running_gateway(MAX_CONNECTIONS=40) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        async with streams(gateway, name, 4):
            with connections(gateway, 36):
                await until(lambda: served(gateway, name), "silent ones make way")
            await until(lambda: in_use(gateway) == 4, "all are gone")
            with connections(gateway, 36, MODELS):
                await until(lambda: served(gateway, name), "those that had a request do")
            await until(lambda: in_use(gateway) == 4, "all are gone")
            async with http2_connections(gateway, 36):
                await until(lambda: served(gateway, name), "those over HTTP/2 do")
            await until(lambda: in_use(gateway) == 4, "all are gone")
            async with http2_connections(gateway, 36, name):
                await until(lambda: served(gateway, name), "those that had a request over HTTP/2 do")


async def test_a_connection_without_a_request_is_kept_while_there_are_enough() -> None:
    with running_gateway(MAX_CONNECTIONS=40) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        with connections(gateway, 15) as silent, connections(gateway, 10, MODELS) as asked:
            async with Http2Client(gateway.port) as other:
                assert (await other.post(CHAT, body_of(name, 100))).ok
                await asyncio.sleep(6)  # three times as long as where few are left
                assert not any(closed(one) for one in (*silent, *asked))
                assert (await other.post(CHAT, body_of(name, 100))).ok


async def test_a_new_picker_goes_on_telling_how_many_connections_are_open() -> None:
    with running_gateway(MAX_CONNECTIONS=40) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        gateway.kill_picker()
        gateway.start_picker()
        with connections(gateway, 40):
            await until(lambda: served(gateway, name), "others are served")
