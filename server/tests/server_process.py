"""Starts `llmendpoint-server` as a process of its own, for tests that talk to it over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

FAKE_ENGINE = Path(__file__).parent / "api/fake_engine.py"
WITH_FAKE = """
import sys
from llmendpoint_server.__main__ import run
from llmendpoint_server.settings import parse
sys.exit(run(parse(sys.argv[2:]), engine_command=(sys.executable, sys.argv[1])))
"""
START_LIMIT_S = 120


class ServerProcess:
    """One server on a free port of 127.0.0.1. `fake` holds the options of fake_engine.py; None means the real engine.

    `module` is what `python -m` runs: the server or the simulator. `before`: Python that a server with a fake engine
    runs first, such as a shorter limit.
    """

    def __init__(
        self,
        *flags: str,
        model: str = "embedded://demo",
        fake: dict[str, Any] | None = None,
        module: str = "llmendpoint_server",
        before: str = "",
    ) -> None:
        arguments = ["--model", model, "--host", "127.0.0.1", "--port", "0", *flags]
        start = ["-m", module] if fake is None else ["-c", before + WITH_FAKE, str(FAKE_ENGINE)]
        environment = os.environ | ({} if fake is None else {"FAKE_ENGINE": json.dumps(fake)})
        self.process = subprocess.Popen(
            [sys.executable, *start, *arguments],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def log(self) -> list[dict[str, Any]]:
        """What was logged so far (lines of libraries that are no JSON are left out)."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_for(self, what: str, check: Any, limit_s: float = START_LIMIT_S) -> Any:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if result := check():
                return result
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the server left with {self.process.returncode} while waiting for {what}:\n"
                    + "\n".join(self.lines)
                )
            time.sleep(0.02)
        raise AssertionError(f"{what} did not come within {limit_s} s:\n" + "\n".join(self.lines))

    @property
    def url(self) -> str:
        lines = self.wait_for(
            "the port", lambda: [line for line in self.log() if line["event"] == "listening"]
        )
        return f"http://127.0.0.1:{lines[0]['port']}"

    def status(self, path: str) -> int:
        try:
            return httpx.get(self.url + path, timeout=30).status_code
        except httpx.TransportError:
            return 0

    def wait_ready(self) -> ServerProcess:
        self.wait_for("/ready", lambda: self.status("/ready") == 200)
        return self

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, limit_s: float = 60) -> int:
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the server did not leave within {limit_s} s:\n" + "\n".join(self.lines)
            ) from None
        self._reader.join(10)
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
