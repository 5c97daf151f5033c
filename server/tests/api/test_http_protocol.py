"""docs/contribute/contracts.md: upgrades, heads without end, and callers that stop sending or reading are bounded as the table says."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from server.tests.server_process import ServerProcess

ASK: dict[str, Any] = {"model": "chat", "prompt": "Hello there", "max_tokens": 4}
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"


@contextmanager
def connection(server: ServerProcess) -> Iterator[socket.socket]:
    port = int(server.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as opened:
        yield opened


def post(body: bytes, headers: str = "", version: str = "1.1") -> bytes:
    head = f"POST /v1/completions HTTP/{version}\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_all(opened: socket.socket) -> bytes:
    parts = []
    while part := opened.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_answer(opened: socket.socket) -> tuple[int, bytes]:
    """One answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += opened.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += opened.recv(65536)
    return int(head.split()[1]), body


@pytest.mark.parametrize("whole", [True, False])
def test_an_upgrade_is_ignored_and_its_request_served_with_its_body(
    fake_server: ServerProcess, whole: bool
) -> None:
    message = post(json.dumps(ASK | {"user": "u" * 500}).encode(), H2C)
    with connection(fake_server) as opened:
        for part in [message] if whole else [message[:90], message[90:-100], message[-100:]]:
            opened.sendall(part)
            time.sleep(0 if whole else 0.05)
        status, body = read_answer(opened)
        assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 4)
        opened.sendall(post(json.dumps(ASK).encode()))  # the connection goes on
        assert read_answer(opened)[0] == 200


def test_upgrades_that_are_sent_in_one_piece_end_the_connection_with_the_answer_that_is_due(
    fake_server: ServerProcess,
) -> None:
    """Each was read anew with all that followed it, by a call inside of the call for the one before."""
    upgrade = b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n"
    plain = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for message, answers in ((upgrade * 3, 1), (plain * 2 + upgrade, 2), (upgrade + plain + upgrade, 2)):
        with connection(fake_server) as opened:
            opened.sendall(message)
            assert read_all(opened).count(b"HTTP/1.1 200") == answers
    with connection(fake_server) as opened, suppress(ConnectionError):  # it does not read all of it
        opened.sendall(upgrade * 4_000)
        read_all(opened)
    assert httpx.get(fake_server.url + "/health").status_code == 200
    assert not [line for line in fake_server.log() if "RecursionError" in json.dumps(line)]


def test_connect_is_refused(fake_server: ServerProcess) -> None:
    with connection(fake_server) as opened:
        opened.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(opened)[0] == 405


def test_a_stream_to_http_1_0_ends_with_the_connection_and_has_no_chunks(fake_server: ServerProcess) -> None:
    with connection(fake_server) as opened:
        opened.sendall(post(json.dumps(ASK | {"stream": True}).encode(), version="1.0"))
        head, _, body = read_all(opened).partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert b"transfer-encoding" not in head
    events = body.decode().strip().split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_head_has_the_headers_of_get_and_no_body(fake_server: ServerProcess) -> None:
    answer = httpx.head(fake_server.url + "/v1/models")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /health?" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)) + b"\r\n",
        b"GET /health HTTP/1.1\r\nX-Endless: " + b"x" * 1_000_000,
    ],
    ids=["a long value", "a long path", "many headers", "no end"],
)
def test_a_head_beyond_the_limit_is_refused_with_the_limit(fake_server: ServerProcess, head: bytes) -> None:
    with connection(fake_server) as opened:
        try:
            opened.sendall(head)
        except ConnectionError:  # it did not read on
            pass
        status, body = read_answer(opened)
        assert status == 431
        assert "65536 bytes" in json.loads(body)["error"]["message"]


def test_requests_that_come_in_one_piece_are_answered_one_by_one(fake_server: ServerProcess) -> None:
    large = post(json.dumps(ASK | {"prompt": "word " * 30_000}).encode())  # far too long: 400
    small = post(json.dumps(ASK).encode())
    with connection(fake_server) as opened:
        opened.sendall(large + small[:40])
        assert read_answer(opened)[0] == 400
        opened.sendall(small[40:])
        assert read_answer(opened)[0] == 200


def test_what_is_no_http_is_a_400_in_the_usual_shape(fake_server: ServerProcess) -> None:
    with connection(fake_server) as opened:
        opened.sendall(b"\x16\x03\x01\x02\x00 hello\r\n\r\n")
        status, body = read_answer(opened)
        assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")


SHORT_WAITS = """
from llmendpoint_server import limits
from llmendpoint_server.api import http_protocol
http_protocol.WRITE_SECONDS_MAX = 0.5
limits.HEADER_SECONDS_MAX = limits.BODY_SECONDS_MAX = 0.5
"""


@pytest.fixture(scope="module")
def impatient() -> Iterator[ServerProcess]:
    with ServerProcess("--max-model-len", "300000", fake={}, before=SHORT_WAITS) as process:
        yield process.wait_ready()


def running(server: ServerProcess) -> int:
    return int(httpx.get(server.url + "/load").json()["running"])


def test_a_caller_that_stops_reading_is_cut_and_its_request_aborted(impatient: ServerProcess) -> None:
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 299_000, "stream": True}
    with connection(impatient) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(post(json.dumps(body).encode()))
        stalled.recv(100)
        impatient.wait_for("the request to be aborted", lambda: running(impatient) == 0, 60)
    assert any("does not read" in line["event"] for line in impatient.log())
    line = impatient.wait_for(
        "its line", lambda: [line for line in impatient.log() if line.get("finish") == "abort"]
    )[-1]
    assert line["output_tokens"] < 299_000


def test_a_caller_that_reads_slowly_is_served_to_the_end(impatient: ServerProcess) -> None:
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 6_000, "stream": True}
    with connection(impatient) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        slow.sendall(post(json.dumps(body).encode(), version="1.0"))
        data = b""
        for _ in range(12):
            time.sleep(0.1)
            data += slow.recv(30_000)
        data += read_all(slow)
    assert data.rstrip().endswith(b"data: [DONE]")


def test_an_answer_that_is_read_too_slowly_is_cut_with_an_error_and_the_others_are_served() -> None:
    few = "from llmendpoint_server.api import engine_stream; engine_stream.UNREAD_TOKENS_MAX = 2_000\n"
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 299_000, "stream": True}
    with ServerProcess("--max-model-len", "300000", fake={}, before=few) as server:
        server.wait_ready()
        with connection(server) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
            slow.sendall(post(json.dumps(body).encode(), version="1.0"))
            slow.recv(100)
            ask = {"model": "demo", "prompt": "Hello", "max_tokens": 50}
            other = httpx.post(server.url + "/v1/completions", json=ask, timeout=60).json()
            assert other["usage"]["completion_tokens"] == 50
            server.wait_for("the request to be aborted", lambda: running(server) == 0, 60)
            rest = read_all(slow)
        assert b"tokens of its answer unread" in rest
        assert b"[DONE]" not in rest
        [line] = server.wait_for(
            "its line", lambda: [line for line in server.log() if line.get("finish") == "error"]
        )
        assert 2_000 < line["output_tokens"] < 100_000


def test_a_caller_that_reads_nothing_does_not_delay_a_drain() -> None:
    with ServerProcess(
        "--max-model-len", "300000", "--drain-timeout", "500", fake={}, before=SHORT_WAITS
    ) as server:
        server.wait_ready()
        body = {"model": "demo", "prompt": "Hello", "max_tokens": 299_000, "stream": True}
        with connection(server) as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.sendall(post(json.dumps(body).encode()))
            stalled.recv(100)
            server.terminate()
            assert server.wait_exit(60) == 0


def test_a_head_and_a_body_that_never_end_are_refused_after_a_time(impatient: ServerProcess) -> None:
    with connection(impatient) as opened:
        opened.sendall(b"GET /health HTTP/1.1\r\nHost")
        assert read_answer(opened)[0] == 408
    with connection(impatient) as opened:
        opened.sendall(post(b"x" * 1000)[:-500])
        status, body = read_answer(opened)
        assert (status, json.loads(body)["error"]["code"]) == (408, "body_timeout")
    with connection(impatient) as opened:  # and one that says nothing at all is closed
        assert opened.recv(100) == b""


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_has_closed_its_sending_half_gets_its_answer(
    fake_server: ServerProcess, stream: bool
) -> None:
    with connection(fake_server) as opened:
        opened.sendall(post(json.dumps(ASK | {"stream": stream}).encode()))
        opened.shutdown(socket.SHUT_WR)
        answer = read_all(opened)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.rstrip().endswith(b"data: [DONE]\n\n\r\n0" if stream else b"}")


def test_a_stream_whose_caller_is_gone_is_aborted_though_it_said_so_by_an_end_alone(
    impatient: ServerProcess,
) -> None:
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 299_000, "stream": True}
    with connection(impatient) as opened:
        opened.sendall(post(json.dumps(body).encode()))
        opened.recv(10)
        opened.shutdown(socket.SHUT_WR)
    impatient.wait_for("the request to be aborted", lambda: running(impatient) == 0, 20)
