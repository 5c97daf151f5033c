"""Stub engines as processes of their own."""

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.tests.bounds import PATIENCE, free_port, wait_for

SCRIPT = Path(__file__).parent / "backend.py"


@dataclass
class Backend:
    """A stub engine process (backend.py says what it can do)."""

    name: str
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()

    def start(self) -> "Backend":
        command = [sys.executable, str(SCRIPT), str(self.port), self.name, *self.options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_for(lambda: self.stats() is not None, f"backend {self.name} answers")
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

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
