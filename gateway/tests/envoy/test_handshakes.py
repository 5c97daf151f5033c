"""docs/concepts/gateway.md, "WebSockets": a handshake is a request like others until the connection opens."""

import socket
import time

import httpx
import pytest

from gateway.tests.asking import expect_a_replica
from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway
from gateway.tests.sockets import ASK, CHAT, at, engine, open_sockets, refused
from tests.web_socket import Caller

HANDSHAKE = (
    "host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
)


@pytest.mark.parametrize("fault", ["gone", "draining", "breaks off"])
def test_a_handshake_that_a_replica_refuses_goes_to_another_one(gateway: Gateway, fault: str) -> None:
    options = {"draining": "retriable-503", "breaks off": "reset"}
    bad, good = gateway.backend("bad", *([options[fault]] if fault in options else [])), engine(gateway)
    name = gateway.endpoint(bad, good)
    if fault == "gone":
        bad.kill()
    for _ in range(4):
        with Caller(gateway, f"/team/{name}/v1/stream") as caller:
            caller.ask(CHAT, ASK)
            assert caller.answer()[1] == 200
            wait_for(lambda: at(gateway, name, good) == 1, "it is counted where it went")
    wait_for(lambda: open_sockets(gateway, name) == [0, 0], "none is counted any more")


def test_a_handshake_waits_for_a_replica_like_any_request(gateway: Gateway) -> None:
    expect_a_replica(gateway, "later")
    begun = time.monotonic()
    assert refused(gateway, "/team/later/v1/stream") == (503, "no_ready_replica")
    assert time.monotonic() - begun >= 1


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_nothing_reaches_an_engine_behind_a_handshake_that_it_does_not_take(
    gateway: Gateway, pause: float
) -> None:
    """It would read that as another request, to a path that is for its operator."""
    stub = gateway.backend("stub")
    name = gateway.endpoint(stub)
    hidden = b"POST /v1/load_lora_adapter HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as caller:
        caller.sendall(f"GET /team/{name}/v1/stream HTTP/1.1\r\nx-delay: 1\r\n{HANDSHAKE}\r\n".encode())
        time.sleep(pause)
        caller.sendall(hidden)
        assert caller.recv(1000).startswith(b"HTTP/1.1 200")
        caller.sendall(hidden)
        time.sleep(0.3)
    seen = httpx.get(f"http://{stub.address}/stub/seen").json()
    assert [request["path"] for request in seen] == ["/v1/stream"]


@pytest.mark.parametrize(
    "head",
    ["content-length: 100", "content-length: 100000", "transfer-encoding: chunked", "content-encoding: gzip"],
)
def test_what_a_handshake_says_of_a_body_changes_nothing(gateway: Gateway, head: str) -> None:
    name = gateway.endpoint(engine(gateway))
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as caller:
        caller.sendall(f"GET /team/{name}/v1/stream HTTP/1.1\r\n{HANDSHAKE}{head}\r\n\r\n".encode())
        assert caller.recv(1000).startswith(b"HTTP/1.1 101")
        assert open_sockets(gateway, name) == [1]
