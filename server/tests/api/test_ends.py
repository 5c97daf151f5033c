"""docs/contribute/contracts.md: how a server ends after a drain, a signal, an engine's death or a failed load, and its exit code.

The engine is a fake at the wire.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from server.tests.api.served import ASK, URL, children, load, wait_running
from server.tests.server_process import ServerProcess


def test_sigterm_refuses_what_is_new_finishes_what_runs_and_exits_0() -> None:
    with ServerProcess(fake={"delay": 0.01}) as server:
        server.wait_ready()
        url = server.url
        with ThreadPoolExecutor(2) as pool, httpx.Client(base_url=url) as kept:
            body = ASK | {"max_tokens": 200, "stream": True}
            whole = pool.submit(httpx.post, url + URL, json=ASK | {"max_tokens": 200}, timeout=60)
            streamed = pool.submit(httpx.post, url + URL, json=body, timeout=60)
            wait_running(server, 2)
            kept.get("/ready")
            server.terminate()
            server.wait_for("/ready to end", lambda: kept.get("/ready").status_code == 503, 10)
            assert kept.get("/ready").json()["status"] == "draining"
            assert kept.get("/health").status_code == 200
            refused = kept.post(URL, json=ASK)
            assert refused.status_code == 503
            assert refused.headers["x-llmendpoint-retriable"] == "1"
            assert whole.result().json()["usage"]["completion_tokens"] == 200
            assert streamed.result().text.rstrip().endswith("[DONE]")
        assert server.wait_exit() == 0


def test_the_drain_timeout_cuts_a_stream_with_an_error_event_and_exits_0() -> None:
    with ServerProcess("--drain-timeout", "0.3", fake={"delay": 0.02}) as server:
        server.wait_ready()
        with ThreadPoolExecutor(1) as pool:
            streamed = pool.submit(httpx.post, server.url + URL, json=ASK | {"stream": True}, timeout=60)
            wait_running(server, 1)
            server.terminate()
            last = streamed.result().text.rstrip().splitlines()[-1]
        assert "drain timeout" in json.loads(last.removeprefix("data: "))["error"]["message"]
        assert server.wait_exit() == 0


def test_a_second_signal_does_not_wait() -> None:
    with ServerProcess(fake={"delay": 0.02}) as server:
        server.wait_ready()
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(httpx.post, server.url + URL, json=ASK, timeout=60)
            wait_running(server, 1)
            server.terminate()
            server.wait_for(
                "draining", lambda: [line for line in server.log() if line["event"] == "draining"]
            )
            server.process.send_signal(signal.SIGINT)
            assert request.result().status_code == 500
        assert server.wait_exit() == 0


def test_when_the_engine_dies_every_request_is_told_and_the_process_ends_with_the_cause_last() -> None:
    with ServerProcess(fake={"delay": 0.02, "die_with": 2}) as server:
        server.wait_ready()
        url = server.url
        with ThreadPoolExecutor(2) as pool:
            whole = pool.submit(httpx.post, url + URL, json=ASK | {"max_tokens": 2000}, timeout=60)
            with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as sdk:

                def read_stream() -> int:
                    return sum(1 for _ in sdk.completions.create(**ASK, stream=True))

                streamed = pool.submit(read_stream)
                with pytest.raises(openai.APIError, match="exit code 9"):
                    streamed.result()
            assert whole.result().status_code == 500
            assert whole.result().json()["error"]["code"] == "engine_failed"
            assert whole.result().headers["x-llmendpoint-crashed"] == "1"
        assert server.wait_exit() == 1
        assert all(line.startswith("{") for line in server.lines), server.lines
        last = json.loads(server.lines[-1])
        assert "exit code 9" in last["event"]
        assert last["level"] == "error"


def test_when_the_engine_dies_a_stream_says_why_and_does_not_end_as_if_it_were_whole() -> None:
    with ServerProcess(fake={"delay": 0.02, "die_with": 1}) as server:
        server.wait_ready()
        received: list[bytes] = []
        ask = {"json": ASK | {"stream": True}, "timeout": 60}
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("POST", server.url + URL, **ask) as answer,
        ):
            received.extend(answer.iter_raw())
        last = b"".join(received).decode().rstrip().splitlines()[-1]
        assert "exit code 9" in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_an_engine_that_has_hung_up_is_failed_at_once_though_its_process_stays() -> None:
    with ServerProcess(fake={"delay": 0.02, "hang_up_with": 1}) as server:
        server.wait_ready()
        (engine,) = children(server.process.pid)
        lost = httpx.post(server.url + URL, json=ASK, timeout=60)
        assert (lost.status_code, lost.headers["x-llmendpoint-crashed"]) == (500, "1")
        for path in ("/ready", "/health"):
            answer = httpx.get(server.url + path)
            assert (answer.status_code, answer.json()["status"]) == (503, "failed")
            assert "has gone while serving" in answer.json()["detail"]
        refused = httpx.post(server.url + URL, json=ASK)
        assert (refused.status_code, refused.headers["x-llmendpoint-retriable"]) == (503, "1")
        assert Path(f"/proc/{engine}").exists(), "the process was to stay, or this tests nothing"
        os.kill(engine, signal.SIGKILL)
        assert server.wait_exit() == 1
        assert "killed by signal 9" in json.loads(server.lines[-1])["event"]


def test_a_request_that_still_waits_when_the_drain_timeout_ends_may_be_tried_elsewhere() -> None:
    with ServerProcess("--drain-timeout", "0.3", fake={"delay": 0.02, "max_running": 1}) as server:
        server.wait_ready()
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(httpx.post, server.url + URL, json=ASK, timeout=60)
            wait_running(server, 1)
            queued = pool.submit(httpx.post, server.url + URL, json=ASK, timeout=60)
            server.wait_for("it to wait", lambda: load(server)["waiting"] == 1)
            server.terminate()
            assert running.result().status_code == 500
            assert queued.result().status_code == 503
            assert queued.result().headers["x-llmendpoint-retriable"] == "1"
        assert server.wait_exit() == 0


def test_numbers_that_no_message_holds_are_refused_and_an_idle_server_drains_at_once() -> None:
    with ServerProcess(fake={}) as server:
        server.wait_ready()
        for number in (2**31, 2**63, 2**64, 10**30):
            refused = httpx.post(server.url + URL, json=ASK | {"top_k": number, "temperature": 1})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_k")
        assert httpx.post(server.url + URL, json=ASK | {"max_tokens": 2}).status_code == 200
        server.terminate()
        assert server.wait_exit() == 0
        (line,) = [line for line in server.log() if line["event"] == "draining"]
        assert line["in_flight"] == 0


def test_a_signal_while_the_model_is_downloaded_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:  # it takes the connection and never answers
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        hub.settimeout(60)
        with ServerProcess(model="hf://acme/model") as server:
            connection, _ = hub.accept()
            with connection:
                server.terminate()
                assert server.wait_exit() == 0


def test_a_load_error_ends_the_process_with_the_engines_own_code_and_words() -> None:
    with ServerProcess(fake={"load_error": ["The architecture 'X' cannot be served.", 4]}) as server:
        assert server.wait_exit() == 4
        assert json.loads(server.lines[-1])["event"] == "The architecture 'X' cannot be served."


def test_a_model_that_does_not_exist_ends_with_3(tmp_path: Path) -> None:
    with ServerProcess(model=str(tmp_path / "nothing"), fake={}) as server:
        assert server.wait_exit() == 3
        assert "nothing" in json.loads(server.lines[-1])["event"]


def test_a_port_that_is_taken_ends_with_2_and_says_so() -> None:
    with ServerProcess(fake={}) as first:
        port = first.url.rsplit(":", 1)[1]
        with ServerProcess("--port", port, fake={}) as second:
            assert second.wait_exit() == 2
            assert port in json.loads(second.lines[-1])["event"]


def test_the_engine_leaves_when_the_api_process_is_killed() -> None:
    with ServerProcess(fake={}) as server:
        server.wait_ready()
        (engine,) = children(server.process.pid)
        server.process.kill()
        server.process.wait()
        end = time.monotonic() + 20
        while (
            time.monotonic() < end
            and Path(f"/proc/{engine}").exists()
            and "\tZ" not in Path(f"/proc/{engine}/status").read_text()
        ):
            time.sleep(0.05)
        if Path(f"/proc/{engine}").exists() and "State:\tZ" not in Path(f"/proc/{engine}/status").read_text():
            os.kill(engine, signal.SIGKILL)
            raise AssertionError("the engine process outlived its server")
