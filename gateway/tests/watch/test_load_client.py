"""docs/concepts/gateway.md: a replica's load is read over one kept connection, and whatever a replica does ends in a second."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from llmendpoint_gateway.core.endpoint.load_answer import Answer
from llmendpoint_gateway.watch.load_client import KEPT_SECONDS, TIMEOUT_SECONDS, LoadClient

LOAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
ANSWER = Answer(200, b"{}", True)
Engine = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Replica:
    """An engine that does `each` for every request; what it does is up to the test."""

    def __init__(self, each: Engine) -> None:
        self._each = each
        self.connections = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self._each(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


class Asker:
    """The client, with a clock that a test may move, and what it was told."""

    def __init__(self) -> None:
        self.late = 0.0
        self.client = LoadClient(self._answered, lambda: time.monotonic() + self.late)
        self._told: asyncio.Queue[tuple[str, Answer | None]] = asyncio.Queue()

    def _answered(self, address: str, answer: Answer | None) -> None:
        self._told.put_nowait((address, answer))

    async def ask(self, address: str) -> Answer | None:
        self.client.ask(address)
        return await self.told(address)

    async def told(self, address: str) -> Answer | None:
        told, answer = await asyncio.wait_for(self._told.get(), 10)
        assert (told, self._told.empty()) == (address, True)
        return answer


@pytest.fixture
async def asker() -> AsyncIterator[Asker]:
    asking = Asker()
    yield asking
    asking.client.close()


async def listening(replica: Replica, host: str = "127.0.0.1") -> str:
    server = await asyncio.start_server(replica.serve, host, 0)
    port = server.sockets[0].getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(LOAD)


async def test_one_connection_serves_all_readings_until_it_is_idle_for_long(asker: Asker) -> None:
    replica = Replica(answers)
    address = await listening(replica)
    assert [await asker.ask(address) for _ in range(3)] == [ANSWER] * 3
    assert replica.connections == 1
    assert replica.requests[0].startswith(b"GET /load HTTP/1.1\r\nHost: " + address.encode())
    asker.client.sweep()
    assert await asker.ask(address) == ANSWER
    asker.late += KEPT_SECONDS + 1
    asker.client.sweep()
    assert await asker.ask(address) == ANSWER
    assert replica.connections == 2


async def test_an_answer_that_comes_in_pieces_is_read_whole(asker: Asker) -> None:
    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for place in range(0, len(LOAD), 9):
            writer.write(LOAD[place : place + 9])
            await writer.drain()
            await asyncio.sleep(0.002)

    assert await asker.ask(await listening(Replica(slowly))) == ANSWER


async def test_a_replica_that_closed_the_kept_connection_meanwhile_is_asked_on_a_new_one(
    asker: Asker,
) -> None:
    async def once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(replica.requests) == 2:  # as when it closes it at the moment that it is asked
            writer.transport.abort()
        else:
            writer.write(LOAD)

    replica = Replica(once)
    address = await listening(replica)
    assert await asker.ask(address) == ANSWER
    assert await asker.ask(address) == ANSWER
    assert (replica.connections, len(replica.requests)) == (2, 3)
    replica.writers[-1].close()  # and as when it closes it between two
    await asyncio.sleep(0.05)
    assert await asker.ask(address) == ANSWER


async def test_a_new_connection_that_ends_without_an_answer_is_not_tried_again(asker: Asker) -> None:
    async def ends(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    replica = Replica(ends)
    assert await asker.ask(await listening(replica)) is None
    assert replica.connections == 1


async def test_a_replica_that_does_not_answer_is_given_up_and_a_late_answer_of_it_is_dropped(
    asker: Asker,
) -> None:
    release = asyncio.Event()

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(LOAD)

    replica = Replica(late)
    address = await listening(replica)
    asker.client.ask(address)
    await asyncio.sleep(0.05)
    asker.client.sweep()
    asker.late += TIMEOUT_SECONDS
    asker.client.sweep()
    assert await asker.told(address) is None
    release.set()
    await asyncio.sleep(0.05)
    assert await asker.ask(address) == ANSWER
    assert replica.connections == 2


async def test_a_pod_that_takes_over_an_address_is_asked_and_the_question_to_the_one_before_is_dropped(
    asker: Asker,
) -> None:
    ended = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.append(writer)

    replica = Replica(silent)
    address = await listening(replica)
    for _ in range(2):
        asker.client.ask(address)
        await asyncio.sleep(0.05)
    assert replica.connections == 2
    assert ended == replica.writers[:1]
    asker.late += TIMEOUT_SECONDS
    asker.client.sweep()
    assert await asker.told(address) is None


async def test_nobody_listens(asker: Asker) -> None:
    server = await asyncio.start_server(Replica(answers).serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert await asker.ask(f"127.0.0.1:{port}") is None


@pytest.mark.parametrize(
    "bad",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", b"x" * 100_000],
)
async def test_an_answer_that_is_none_is_a_missed_reading(asker: Asker, bad: bytes) -> None:
    async def says(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bad)
        writer.close()

    assert await asker.ask(await listening(Replica(says))) is None


async def test_bytes_that_nobody_asked_for_end_the_kept_connection(asker: Asker) -> None:
    replica = Replica(answers)
    address = await listening(replica)
    assert await asker.ask(address) == ANSWER
    replica.writers[0].write(LOAD)
    await asyncio.sleep(0.05)
    assert await asker.ask(address) == ANSWER
    assert replica.connections == 2


async def test_an_answer_byte_by_byte_for_ever_is_given_up(asker: Asker) -> None:
    async def drips(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(1000):
            writer.write(b"h")
            await writer.drain()
            await asyncio.sleep(0.001)

    assert await asker.ask(await listening(Replica(drips))) is None


async def test_an_address_of_ipv6(asker: Asker) -> None:
    try:
        address = await listening(Replica(answers), "::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert await asker.ask(address) == ANSWER
