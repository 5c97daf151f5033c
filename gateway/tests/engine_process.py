"""Stub engines as processes of their own."""

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.tests.bounds import PATIENCE, wait_for
from tests.ports import free_port

SCRIPT = Path(__file__).parent / "backend.py"


@dataclass
class Backend:
    """A stub engine process (backend.py says what it can do)."""

    name: str
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()

    def start(self) -> "Backend":
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL)
        wait_for(self.answers, f"backend {self.name} answers")
        return self

    def command(self) -> list[str]:
        return [sys.executable, str(SCRIPT), str(self.port), self.name, *self.options]

    def answers(self) -> bool:
        return self.stats() is not None

    def finish(self, count: int) -> None:
        """Once exactly so many requests are being answered, they end, and well."""
        wait_for(lambda: self.stats()["running"] == count, f"{count} requests run at {self.name}")
        with urllib.request.urlopen(f"http://{self.address}/stub/finish", timeout=PATIENCE) as answer:
            answer.read()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def load(self, adapter: str) -> None:
        """From now on it has this adapter."""
        body = json.dumps({"lora_name": adapter, "lora_path": "hf://acme/one"}).encode()
        url = f"http://{self.address}/v1/load_lora_adapter"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=PATIENCE) as answer:
            answer.read()

    def stats(self) -> dict[str, Any]:
        """{"requests", "aborted", "closed_by_peer", "running"}"""
        with urllib.request.urlopen(f"http://{self.address}/stub/stats", timeout=PATIENCE) as answer:
            stats: dict[str, Any] = json.load(answer)
            return stats

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Simulator(Backend):
    """The server's own API before an engine that is simulated; `name` is the model's, `options` are its flags."""

    def command(self) -> list[str]:
        flags = ["--model", "simulated", "--served-model-name", self.name, "--host", "127.0.0.1"]
        return [
            sys.executable,
            "-m",
            "llmendpoint_server.simulator",
            *flags,
            "--port",
            str(self.port),
            *self.options,
        ]

    def answers(self) -> bool:
        with urllib.request.urlopen(f"http://{self.address}/ready?wait=10", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
