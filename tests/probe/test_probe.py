"""docs/contribute/contracts.md: the sidecar `llmendpoint-probe` beside a foreign engine: ready after a generation, stuck without one.

The probe and the simulator as a foreign engine are real processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.ports import free_port

LIMIT_S = 60.0
Json = dict[str, Any]


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {LIMIT_S:g} s")


class Command:
    """A module run as a process; ends with its block."""

    def __init__(self, module: str, *flags: str) -> None:
        self._argv = [sys.executable, "-m", module, *flags]
        self.process = subprocess.Popen(self._argv)

    def again(self) -> None:
        """Kill it and start another, as a kubelet would, but with no pause between the two."""
        self.process.kill()
        self.process.wait()
        self.process = subprocess.Popen(self._argv)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Probe(Command):
    def __init__(self, engine_port: int, *flags: str) -> None:
        self.port = free_port()
        super().__init__(
            "llmendpoint_probe", "--engine-url", f"http://127.0.0.1:{engine_port}",
            "--port", str(self.port), *flags,
        )  # fmt: skip
        self.url = f"http://127.0.0.1:{self.port}"
        wait_for("the probe", lambda: self.get("/healthz"))

    def get(self, path: str) -> httpx.Response | None:
        try:
            return httpx.get(self.url + path, timeout=10)
        except httpx.TransportError:
            return None

    def ready(self) -> Json | None:
        """The body of /ready, whose status says the same."""
        found = self.get("/ready")
        assert found is not None, "the probe is gone"
        body: Json = found.json()
        assert body["ready"] == (found.status_code == 200)
        return body

    def live(self) -> Json:
        """The body of /live, whose status says the same."""
        found = self.get("/live")
        assert found is not None, "the probe is gone"
        body: Json = found.json()
        assert body["live"] == (found.status_code == 200)
        return body

    def wait_live(self, status: str) -> Json:
        body: Json = wait_for(f"/live to say {status}", lambda: (b := self.live())["status"] == status and b)
        return body

    def wait(self, status: str) -> Json:
        def found() -> Json | None:
            body = self.ready()
            return body if body and body["status"] == status else None

        body: Json = wait_for(f"the probe to say {status}", found)
        return body


def simulator(port: int, *flags: str) -> Command:
    return Command(
        "llmendpoint_server.simulator", "--model=any", "--foreign", "--host=127.0.0.1", f"--port={port}", *flags
    )  # fmt: skip


def generations(port: int) -> float:
    page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    lines = [line for line in page.splitlines() if line.startswith("vllm:request_success_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_an_engine_is_ready_after_a_generation_and_heartbeats_make_no_more() -> None:
    port = free_port()
    with Probe(port) as probe:
        assert probe.wait("away")["ready"] is False
        with simulator(port, "--load-time=2"):
            wait_for("health", lambda: _health(port) == 200)
            said = []
            while not (body := probe.ready() or {})["ready"]:
                said.append(body["detail"])
            assert any("generation was answered with 503" in detail for detail in said)
            assert generations(port) == 1
            for _ in range(20):
                assert _ready(probe)
            assert generations(port) == 1
        probe.wait("away")


def test_an_engine_that_is_killed_and_started_at_once_is_not_ready_before_a_new_generation() -> None:
    """Whenever /ready says yes, the engine that runs has generated."""
    port = free_port()
    with simulator(port, "--load-time=0.5") as engine, Probe(port) as probe:
        for _ in range(3):
            probe.wait("ready")
            engine.again()
            seen = set()
            while not (body := probe.ready() or {})["ready"]:
                seen.add(body["status"])
            assert seen  # it was noticed at all
            assert generations(port) >= 1


def test_an_engine_that_stops_answering_is_silent_and_needs_no_new_generation_when_it_goes_on() -> None:
    port = free_port()
    with simulator(port) as engine, Probe(port) as probe:
        probe.wait("ready")
        engine.process.send_signal(signal.SIGSTOP)
        try:
            probe.wait("silent")
        finally:
            engine.process.send_signal(signal.SIGCONT)
        probe.wait("ready")
        assert generations(port) == 1


def test_an_engine_whose_health_fails_must_generate_again() -> None:
    port = free_port()
    with simulator(port, "--freeze-after=1") as engine, Probe(port, "--generation-timeout=1") as probe:
        probe.wait("ready")
        body = {"model": "any", "prompt": "x", "max_tokens": 1}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=0.5)
        assert "503" in probe.wait("cold")["detail"]
        engine.again()
        probe.wait("ready")


def test_an_engine_that_is_healthy_and_generates_no_more_is_stuck_until_it_is_started_again() -> None:
    port = free_port()
    flags = ("--stuck-after=2", "--generation-timeout=0.5")
    with simulator(port, "--hang-after=2") as engine, Probe(port, *flags) as probe:
        probe.wait("ready")
        assert probe.live()["live"]
        dead = probe.wait_live("stuck")
        assert "no generation was answered" in dead["detail"]
        assert _health(port) == 200
        engine.again()
        assert probe.wait_live("ready")["live"]


def test_an_engine_that_is_busy_and_counts_tokens_is_not_stuck_though_it_answers_no_heartbeat() -> None:
    """One place in the batch, taken by a request of ten seconds: a generation of the probe waits all the time."""
    port = free_port()
    flags = ("--stuck-after=1", "--generation-timeout=30")
    with simulator(port, "--max-num-seqs=1", "--itl=0.01") as engine, Probe(port, *flags) as probe:
        probe.wait("ready")
        body = {"model": "any", "prompt": "x", "max_tokens": 400, "ignore_eos": True}
        answer = threading.Thread(
            target=lambda: httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60)
        )
        answer.start()
        while answer.is_alive():
            assert probe.live()["live"]
            time.sleep(0.05)
        assert engine.process.poll() is None


def test_an_engine_that_answers_every_request_with_an_error_is_never_ready() -> None:
    port = free_port()
    with simulator(port, "--error-rate=1", "--ttft=0"), Probe(port) as probe:
        assert "answered with 500" in wait_for(
            "a failed generation", lambda: (b := probe.ready() or {}) and "500" in b["detail"] and b
        )["detail"]  # fmt: skip
        assert not _ready(probe)


class Plain(BaseHTTPRequestHandler):
    """An engine with HTTP/1.0, one connection per request, and completions only."""

    asked: list[str]

    def do_GET(self) -> None:
        self._answer(200, b'{"data": [{"id": "base"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        known = self.path == "/v1/completions"
        self._answer(200 if known else 404, b'{"choices": [{"text": "hi"}]}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def plain() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Plain,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_address[1], asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_engine_without_chat_and_without_lasting_connections_generates_once(
    plain: tuple[int, list[str]],
) -> None:
    port, asked = plain
    with Probe(port) as probe:
        probe.wait("ready")
        for _ in range(20):
            assert _ready(probe)
        assert asked == ["/v1/chat/completions", "/v1/completions"]


def test_it_leaves_at_sigterm_with_0_and_a_taken_port_is_named() -> None:
    with Probe(free_port()) as probe:
        taken = subprocess.run(
            [sys.executable, "-m", "llmendpoint_probe", "--port", str(probe.port)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert taken.returncode == 1
        assert str(probe.port) in taken.stderr.splitlines()[-1]
        probe.process.send_signal(signal.SIGTERM)
        assert probe.process.wait(30) == 0


def test_it_loads_neither_kopf_nor_the_kubernetes_client() -> None:
    program = "import sys, llmendpoint_probe.__main__; print(*{n.partition('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"kopf", "kubernetes", "pydantic"} & set(done.stdout.split())
    assert "aiohttp" in done.stdout.split()


def _ready(probe: Probe) -> bool:
    return bool((probe.ready() or {})["ready"])


def _health(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code
    except httpx.TransportError:
        return 0
