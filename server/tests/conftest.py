from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from server.tests.server_process import ServerProcess

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is declared


@pytest.fixture(scope="session")
def fake_server() -> Iterator[ServerProcess]:
    """The real API process with an engine that repeats the prompt's tokens."""
    with ServerProcess(
        "--served-model-name", "team-a/chat", "--served-model-name", "chat", fake={}
    ) as server:
        yield server.wait_ready()


@pytest.fixture(scope="session")
def demo_server() -> Iterator[ServerProcess]:
    """The whole server with the demo model, as a user starts it (torch loads once for all tests)."""
    with ServerProcess("--served-model-name", "demo", "--device", "cpu") as server:
        yield server.wait_ready()


@pytest.fixture(scope="session")
def demo(demo_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=demo_server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client
