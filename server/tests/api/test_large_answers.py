"""docs/reference/api.md: an answer with a million log probabilities, and a caller that reads slowly, hold up nobody."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.api.responses import SLICE, encode_json, pieces_of_json
from server.tests.api.served import load
from server.tests.server_process import ServerProcess

MANY: dict[str, Any] = {
    "model": "demo", "max_tokens": 700, "min_tokens": 700, "ignore_eos": True, "temperature": 2, "seed": 1, "n": 16,
}  # fmt: skip
LONGEST_WAIT = 2.5
"""Seconds, for an answer that takes 2 ms. Without the bound it is 3 to 11 on a machine that does nothing else."""


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


PLAIN = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3))
DEEP = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(DEEP, st.integers(0, 3 * SLICE))
def test_json_in_pieces_is_the_same_json(value: Any, count: int) -> None:
    content = {"a": value, "many": [value] * count, "b": [{"c": {"d": list(range(count))}}]}
    assert b"".join(pieces_of_json(content)) == encode_json(content)


def test_a_large_answer_is_shown_without_holding_up_others(demo_server: ServerProcess) -> None:
    chat = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 20}
    with Waits(demo_server) as waits:
        answer = httpx.post(demo_server.url + "/v1/chat/completions", json=MANY | chat, timeout=120)
    assert len(answer.json()["choices"]) == 16
    assert len(answer.content) > 5_000_000
    assert waits.worst < LONGEST_WAIT


def test_a_caller_that_did_not_read_is_caught_up_with_answer_by_answer(demo_server: ServerProcess) -> None:
    body = json.dumps(
        MANY | {"prompt": "a", "logprobs": 20, "stream": True, "n": 64, "max_tokens": 400, "min_tokens": 400}
    ).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", int(demo_server.url.rsplit(":", 1)[1]))) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.sendall(head + body)
        time.sleep(1)
        demo_server.wait_for("the answers", lambda: load(demo_server)["running"] == 0, 100)
        with Waits(demo_server) as waits:
            caller.close()
            time.sleep(4)
    assert waits.worst < LONGEST_WAIT
