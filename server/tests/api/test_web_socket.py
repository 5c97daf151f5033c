"""docs/api.md: `/v1/stream` answers over a WebSocket, a JSON frame an event, with the bounds and errors of HTTP."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from server.tests.api.over_http import ASK, COMPLETE, events_of
from server.tests.api.served import load, wait_running
from server.tests.server_process import ServerProcess
from tests.web_socket import Caller, Closed

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def told(events: list[Any]) -> dict[str, Any]:
    """What the events of a stream say together: how they are cut depends on when tokens come."""
    said: dict[str, Any] = {"usage": None}
    for event in events:
        said["usage"] = event.get("usage") or said["usage"]
        for choice in event["choices"]:
            at = choice["index"]
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            said[f"text {at}"] = said.get(f"text {at}", "") + piece
            said[f"end {at}"] = choice["finish_reason"]
            tokens = (choice["logprobs"] or {}).get("tokens", [])
            said[f"tokens {at}"] = said.get(f"tokens {at}", []) + tokens
    return said


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, ASK | {"stream": True, "n": 2}),
        (TEXT, COMPLETE | {"stream": True, "stream_options": {"include_usage": True}, "logprobs": 1}),
        (CHAT, ASK | {"stream": True, "messages": [{"role": "user", "content": "a\n\ndata: 日本 🙂"}], "max_tokens": 40}),
    ],
)  # fmt: skip
def test_each_event_of_a_stream_is_a_frame(fake_server: ServerProcess, path: str, body: Any) -> None:
    over_http = events_of(httpx.post(fake_server.url + path, json=body))[:-1]
    with Caller(fake_server) as caller:
        caller.ask(path, body)
        frames, status = caller.answer()
    assert status == 200
    assert told(frames) == told(over_http)
    assert {frame["object"] for frame in frames} == {event["object"] for event in over_http}


def test_an_answer_without_a_stream_is_one_frame(fake_server: ServerProcess) -> None:
    with Caller(fake_server) as caller:
        caller.ask(CHAT, ASK)
        [whole], status = caller.answer()
    assert (status, whole["object"]) == (200, "chat.completion")


def test_requests_follow_one_another_on_a_connection_and_a_refusal_ends_none(
    fake_server: ServerProcess,
) -> None:
    with Caller(fake_server) as caller:
        for body, status, param in (
            (COMPLETE, 200, None),
            (COMPLETE | {"n": 0}, 400, "n"),
            (COMPLETE | {"model": "other"}, 404, "model"),
            (COMPLETE | {"stream": True}, 200, None),
        ):
            caller.ask(TEXT, body)
            frames, told = caller.answer()
            assert told == status
            assert frames[0].get("error", {}).get("param") == param
        caller.ask("/v1/nothing", {})
        assert caller.answer()[1] == 404
        caller.ask("/health", {})
        assert caller.answer()[1] == 405


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"path": 1, "body": {}}', '{"path": "/x"}', "[" * 10_000]
)
def test_a_frame_that_is_no_request_is_refused_and_the_connection_goes_on(
    fake_server: ServerProcess, text: str
) -> None:
    with Caller(fake_server) as caller:
        caller.send(text)
        [refusal], status = caller.answer()
        assert (status, refusal["error"]["type"]) == (400, "invalid_request_error")
        caller.ask(TEXT, COMPLETE)
        assert caller.answer()[1] == 200


def test_close_codes_say_what_was_wrong(fake_server: ServerProcess) -> None:
    with Caller(fake_server) as caller:
        caller.send(b"bytes")
        with pytest.raises(Closed) as closed:
            caller.frame()
        assert closed.value.code == 1003
    with Caller(fake_server) as caller:
        with suppress(ConnectionError):  # it does not read all of it
            caller.send("x" * (17 * 2**20))
        with pytest.raises((Closed, ConnectionError)) as late:
            caller.frame()
        assert getattr(late.value, "code", 1009) == 1009
    assert httpx.get(fake_server.url + "/health").status_code == 200


def test_the_deadline_of_the_connection_holds_for_its_requests(fake_server: ServerProcess) -> None:
    with Caller(fake_server, x_llmendpoint_deadline_ms="soon") as caller:
        caller.ask(TEXT, COMPLETE)
        [refusal], status = caller.answer()
    assert (status, refusal["error"]["param"]) == (400, "x-llmendpoint-deadline-ms")


def test_other_paths_and_pages_of_other_sites_get_no_socket(fake_server: ServerProcess) -> None:
    with pytest.raises(Closed) as refused:
        Caller(fake_server, "/v1/models")  # the upgrade is ignored
    assert refused.value.code == 200
    with pytest.raises(Closed) as refused:
        Caller(fake_server, origin="https://elsewhere.example")
    assert refused.value.code == 403
    with Caller(fake_server, origin=fake_server.url):
        pass


def test_a_caller_that_leaves_or_sends_too_early_ends_its_answer_in_the_engine() -> None:
    endless = {"model": "demo", "prompt": "a b c", "max_tokens": 1900, "stream": True}
    with ServerProcess("--served-model-name", "demo", fake={"delay": 0.01}) as server:
        server.wait_ready()
        with Caller(server) as caller:
            caller.ask(TEXT, endless)
            caller.frame()
            wait_running(server, 1)
        wait_running(server, 0)
        with Caller(server) as caller:
            caller.ask(TEXT, endless)
            caller.frame()
            caller.ask(TEXT, endless)
            with pytest.raises(Closed) as closed:
                caller.answer()
            assert closed.value.code == 1008
        wait_running(server, 0)
        with Caller(server) as caller:
            caller.ask(TEXT, endless | {"stream": False})
            wait_running(server, 1)
        wait_running(server, 0)


def test_a_caller_that_does_not_read_bounds_what_the_server_keeps() -> None:
    """The engine goes on until the stream's bound; the others are served."""
    with ServerProcess(
        "--served-model-name", "demo", "--max-model-len", "200000", fake={"delay": 0.0}
    ) as server:
        server.wait_ready()
        endless = {"model": "demo", "prompt": "a b c", "max_tokens": 190_000, "stream": True}
        with Caller(server) as caller:
            caller.ask(TEXT, endless)
            time.sleep(1)
            other = httpx.post(
                server.url + TEXT, json=endless | {"max_tokens": 5, "stream": False}, timeout=30
            )
            assert other.status_code == 200
        wait_running(server, 0)
        assert load(server)["waiting"] == 0


def test_a_drain_ends_an_answer_whole_and_then_the_connection() -> None:
    with ServerProcess("--served-model-name", "demo", fake={"delay": 0.01}) as server:
        server.wait_ready()
        with Caller(server) as caller:
            caller.ask(TEXT, {"model": "demo", "prompt": "a b c", "max_tokens": 100, "stream": True})
            caller.frame()
            server.terminate()
            frames, status = caller.answer()
            assert status == 200
            assert frames[-1]["choices"][0]["finish_reason"] == "length"
            with pytest.raises(Closed):
                caller.frame()
        assert server.wait_exit() == 0
