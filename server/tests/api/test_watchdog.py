"""docs/contribute/contracts.md: an engine that is there but does nothing fails `/health`, and a restart does not wait for it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.tests.server_process import ServerProcess

ASK: dict[str, Any] = {"model": "demo", "prompt": "Hello", "max_tokens": 1000, "ignore_eos": True}
URL = "/v1/completions"
REAL_ENGINE = None


def health(server: ServerProcess) -> tuple[int, str]:
    answer = httpx.get(server.url + "/health", timeout=30)
    return answer.status_code, answer.json()["detail"]


@contextmanager
def frozen_engine(server: ServerProcess) -> Iterator[None]:
    pid = server.process.pid
    (engine,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        try:
            os.kill(engine, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the server killed it


def assert_ended_by_the_watchdog(server: ServerProcess, part: str) -> None:
    server.terminate()
    assert server.wait_exit(15) == 1  # an engine that is waited for takes 20 s, a drain 600
    last = json.loads(server.lines[-1])
    assert last["level"] == "error"
    assert part in last["event"]


@pytest.mark.parametrize("engine", [{"delay": 0.01}, REAL_ENGINE], ids=["fake", "real"])
def test_a_frozen_engine_fails_health_and_readiness_and_the_restart_ends_its_requests(
    engine: dict[str, Any] | None,
) -> None:
    with ServerProcess("--step-timeout", "2", "--device", "cpu", fake=engine) as server:
        server.wait_ready()
        body = ASK | {"model": "demo", "stream": True, "max_tokens": 400}
        with httpx.stream("POST", server.url + URL, json=body, timeout=60) as stream:
            next(stream.iter_raw())  # it generates
            assert health(server)[0] == 200
            with frozen_engine(server):
                server.wait_for("/health to fail", lambda: health(server)[0] == 503, 20)
                assert "said nothing for more than 2 s" in health(server)[1]
                assert server.status("/ready") == 503
                waiting = http.client.HTTPConnection(httpx.URL(server.url).netloc.decode(), timeout=60)
                waiting.request("POST", URL, json.dumps(ASK), {"content-type": "application/json"})
                health(server)  # a later request is answered, so that this one has arrived
                assert_ended_by_the_watchdog(server, "said nothing")
        assert waiting.getresponse().status in (500, 503)


def test_a_frozen_engine_without_requests_fails_health_too_and_one_that_goes_on_is_well_again() -> None:
    with ServerProcess("--step-timeout", "1.5", fake={}) as server:
        server.wait_ready()
        with frozen_engine(server):
            server.wait_for("/health to fail", lambda: health(server)[0] == 503, 20)
        server.wait_for("/health to be well", lambda: health(server)[0] == 200, 20)
        assert server.status("/ready") == 200


def test_an_engine_that_beats_without_a_step_fails_health() -> None:
    with ServerProcess("--step-timeout", "1.5", fake={"stall_with": 1}) as server:
        server.wait_ready()
        assert health(server)[0] == 200
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(httpx.post, server.url + URL, json=ASK, timeout=60)
            server.wait_for("/health to fail", lambda: health(server)[0] == 503, 20)
            assert_ended_by_the_watchdog(server, "no step for more than 1.5 s")
            assert request.result().status_code == 500


def test_work_of_many_times_the_limit_is_not_stuck_while_its_steps_end() -> None:
    with ServerProcess("--step-timeout", "1.5", fake={"delay": 0.5}) as server:
        server.wait_ready()
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(httpx.post, server.url + URL, json=ASK | {"max_tokens": 9}, timeout=60)
            while not request.done():
                assert health(server)[0] == 200
                time.sleep(0.05)
            assert request.result().status_code == 200
