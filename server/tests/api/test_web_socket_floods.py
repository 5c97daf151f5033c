"""One WebSocket that floods the server with small frames, or names a path of megabytes, holds up nobody and takes no memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

from server.tests.server_process import ServerProcess
from tests.web_socket import Caller, Closed

MASK = b"\x80\0\0\0\0"
"""the length and the mask of an empty frame"""
FLOODS = {
    "fragments": b"\x01" + MASK + (b"\x00" + MASK) * 300_000,
    "pings": (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 100_000,
    "messages": (b"\x81" + MASK) * 300_000,
}
LONGEST_WAIT = 0.5
"""Seconds for an answer that takes 2 ms, on a machine that does other things too. Without the bound it is 3 to 15."""


class Waits:
    """How long /health takes at worst meanwhile."""

    def __init__(self, server: ServerProcess) -> None:
        self._server, self._ended = server, threading.Event()
        self.worst = 0.0
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._ended.is_set():
                began = time.monotonic()
                client.get(self._server.url + "/health")
                self.worst = max(self.worst, time.monotonic() - began)

    def __enter__(self) -> Waits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def resident_mib(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_of_small_frames_ends_its_own_connection_soon(fake_server: ServerProcess, what: str) -> None:
    before = resident_mib(fake_server)
    with Waits(fake_server) as waits, Caller(fake_server) as caller, pytest.raises(ConnectionError):
        caller.send_raw(FLOODS[what] * 10)
    assert waits.worst < LONGEST_WAIT
    assert resident_mib(fake_server) - before < 16


def test_a_caller_is_told_that_its_frames_were_too_small(fake_server: ServerProcess) -> None:
    with Caller(fake_server) as caller:
        caller.send_raw(b"\x01" + MASK + (b"\x00" + MASK) * 3_000)
        with pytest.raises((Closed, ConnectionError)) as closed:
            caller.frame()
    assert getattr(closed.value, "code", 1008) == 1008


def test_a_caller_may_ping_and_send_a_message_in_pieces(fake_server: ServerProcess) -> None:
    text = b'{"path": "/v1/nothing", "body": {}}'
    with Caller(fake_server) as caller:
        caller.send_raw(b"\x01" + MASK)
        for at in range(len(text)):
            caller.send_raw(b"\x89" + MASK + b"\x00\x81\0\0\0\0" + text[at : at + 1])
        caller.send_raw(b"\x80" + MASK)
        assert caller.answer()[1] == 404


def test_a_path_has_a_bound(fake_server: ServerProcess) -> None:
    with Caller(fake_server) as caller:
        caller.ask("/" + "a" * 10_000_000, {})
        [refusal], status = caller.answer()
        assert (status, refusal["error"]["type"]) == (400, "invalid_request_error")
        assert len(refusal["error"]["message"]) < 300
