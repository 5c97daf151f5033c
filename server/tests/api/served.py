"""One endless request, and what a server says of the requests that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from server.tests.server_process import ServerProcess

ASK: dict[str, Any] = {"model": "demo", "prompt": "Hello", "max_tokens": 1000}
URL = "/v1/completions"


def load(server: ServerProcess) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(server.url + "/load").json()
    return answer


def wait_running(server: ServerProcess, count: int) -> None:
    server.wait_for(f"{count} running", lambda: load(server)["running"] == count, 20)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
