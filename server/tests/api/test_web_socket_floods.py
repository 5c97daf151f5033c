"""docs/api.md: a WebSocket that floods the server with small frames, or names a path of megabytes, holds up nobody."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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
MOST_WORK = 1.0
"""Seconds of the server's processor time. Without the bound it is 3 to 15, in which nobody else is answered."""


def work_seconds(server: ServerProcess) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_of_small_frames_ends_its_own_connection_soon(fake_server: ServerProcess, what: str) -> None:
    memory, work = resident_mib(fake_server), work_seconds(fake_server)
    with Caller(fake_server) as caller, pytest.raises(ConnectionError):
        caller.send_raw(FLOODS[what] * 10)
    assert work_seconds(fake_server) - work < MOST_WORK
    assert resident_mib(fake_server) - memory < 16


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


def test_frames_that_never_end_take_little_memory_and_little_time(fake_server: ServerProcess) -> None:
    """As bodies do: four over 1 MiB at once, each whole within 5 s. Else 250 callers fill 16 GiB."""
    cut = b"\x81\xff" + (12 << 20).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * (8 << 20)
    memory, callers = resident_mib(fake_server), [Caller(fake_server) for _ in range(12)]
    for caller in callers:
        with suppress(ConnectionError):
            caller.send_raw(cut)
    assert resident_mib(fake_server) - memory < 200
    codes = []
    for caller in callers:
        with pytest.raises((Closed, ConnectionError)) as closed:
            caller.frame()
        codes.append(getattr(closed.value, "code", 1013))
    assert sorted(codes) == [1008] * 4 + [1013] * 8
    with Caller(fake_server) as caller:
        caller.ask("/v1/nothing", {"model": "x" * (2 << 20)})
        assert caller.answer()[1] == 404, "their places are free again"
        caller.ask("/v1/nothing", {"model": "x" * (2 << 20)})
        assert caller.answer()[1] == 404


def test_a_path_has_a_bound(fake_server: ServerProcess) -> None:
    with Caller(fake_server) as caller:
        caller.ask("/" + "a" * 10_000_000, {})
        [refusal], status = caller.answer()
        assert (status, refusal["error"]["type"]) == (400, "invalid_request_error")
        assert len(refusal["error"]["message"]) < 300
