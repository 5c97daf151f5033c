"""docs/concepts/gateway.md: listeners and routes change while Envoy runs, and no connection notices."""

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.tests.asking import ask
from gateway.tests.bounds import PATIENCE, wait_for
from gateway.tests.harness import Gateway
from gateway.tests.one_endpoint import CHAT, REPLICAS
from gateway.tests.picker_in_process import EnvoyAlone, envoy_alone, picker, settled
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.front import FRONT, Front, make_front, read_front
from llmendpoint_gateway.core.envoy.resources import Resource
from llmendpoint_gateway.core.envoy.xds import LISTENER, ROUTES, Request, Subscription

ASK = b"GET /said HTTP/1.1\r\nhost: x\r\n\r\n"
STATE: dict[str, dict[str, Any]] = {LISTENER: {"openai": 1}, ROUTES: {"openai": 1, "large": 1}}


def test_envoy_gets_all_listeners_and_the_routes_that_it_asks_for() -> None:
    stream = Subscription(STATE)
    (listeners,) = stream.receive(Request(LISTENER))
    (routes,) = stream.receive(Request(ROUTES, frozenset({"openai"})))
    assert (listeners.names, routes.names) == (("openai",), ("openai",))
    assert stream.take_changed() == set()  # no cluster has other endpoints for that


def test_trap_4_an_envoy_that_connects_again_is_sent_neither_listeners_nor_routes_that_it_has() -> None:
    stream = Subscription(STATE)
    assert stream.receive(Request(LISTENER, held={"openai": 1})) == []
    (routes,) = stream.receive(
        Request(ROUTES, frozenset({"openai", "large"}), held={"openai": 1, "large": 0})
    )
    assert routes.names == ("large",)


def test_what_an_envoy_tells_of_itself_is_read_back() -> None:
    told = Front("0.0.0.0", 8080, "/run/inner.sock", Share(2**33, 3, 77), True)
    metadata = json.loads(json.dumps({FRONT: told.as_metadata()}), parse_int=float)
    assert read_front(metadata) == told
    assert read_front({}) is None


def said(word: str) -> Callable[..., Resource]:
    """Routes that answer `GET /said` with this word."""

    def make(front: Front) -> Any:
        made = make_front(front)
        for host in (host for routes in made[ROUTES].values() for host in routes["virtual_hosts"]):
            answer = {"direct_response": {"status": 200, "body": {"inline_string": word}}}
            host["routes"].insert(0, {"match": {"path": "/said"}, **answer})
        return made

    return make


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        for _ in range(int(PATIENCE / 0.05)):
            try:
                return cls(*await asyncio.open_connection("127.0.0.1", port))
            except ConnectionError:
                await asyncio.sleep(0.05)
        raise TimeoutError("nobody listens")

    async def said(self) -> str:
        self._writer.write(ASK)
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE)
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return (await self._reader.readexactly(length)).decode()


@asynccontextmanager
async def configuring(envoy: EnvoyAlone, made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A picker that gives Envoy these listeners and routes, until Envoy has taken all."""
    monkeypatch.setattr("llmendpoint_gateway.serve.envoy.ads.make_front", made)
    async with picker(envoy) as parts:
        parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
        parts.control.relisted(Kind.SLICE, {"a/s": REPLICAS})
        await settled(parts)
        yield parts


async def test_changed_routes_serve_the_connections_that_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with envoy_alone() as envoy:
        async with configuring(envoy, said("one"), monkeypatch):
            connection = await Connection.open(envoy.port)
            assert await connection.said() == "one"
        assert await connection.said() == "one"  # without a picker it keeps what it has
        async with configuring(envoy, said("two"), monkeypatch):
            assert await connection.said() == "two"
            assert await (await Connection.open(envoy.port)).said() == "two"


async def test_a_changed_listener_leaves_open_connections_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def larger(given: Front) -> Any:
        made = said("two")(given)
        made[LISTENER]["openai"]["per_connection_buffer_limit_bytes"] = 65_536
        return made

    async with envoy_alone() as envoy:
        async with configuring(envoy, said("one"), monkeypatch):
            connection = await Connection.open(envoy.port)
            assert await connection.said() == "one"
        async with configuring(envoy, larger, monkeypatch):
            assert await connection.said() == "two"
            assert await (await Connection.open(envoy.port)).said() == "two"
            dump = await asyncio.to_thread(envoy.admin, "/config_dump?resource=dynamic_listeners")
            listening = {
                found["name"]: found["active_state"]["listener"] for found in json.loads(dump)["configs"]
            }
            assert listening["openai"]["per_connection_buffer_limit_bytes"] == 65_536


async def test_routes_that_envoy_refuses_leave_the_last_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(given: Front) -> Any:
        made = said("two")(given)
        (host,) = made[ROUTES]["openai"]["virtual_hosts"]
        host["routes"][0]["match"] = {"safe_regex": {"regex": "("}}
        return made

    async with envoy_alone() as envoy:
        async with configuring(envoy, said("one"), monkeypatch):
            connection = await Connection.open(envoy.port)
        monkeypatch.setattr("llmendpoint_gateway.serve.envoy.ads.make_front", broken)
        async with picker(envoy) as parts:
            parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
            parts.control.relisted(Kind.SLICE, {"a/s": REPLICAS})
            for _ in range(int(PATIENCE / 0.05)):
                if parts.ads.nack:
                    break
                await asyncio.sleep(0.05)
            assert "missing )" in (parts.ads.nack or "")
            assert await connection.said() == "one"


def test_an_envoy_that_starts_anew_beside_its_picker_serves_again(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    gateway.envoy.kill()
    gateway.envoy.wait()
    gateway.start_envoy()
    gateway.ready()
    wait_for(lambda: ask(gateway, name)[0] == 200, "it serves")
