"""docs/api.md: the clients that people have work unchanged, with streams, structured output, tools, embeddings and errors."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from server.tests.server_process import ServerProcess
from server.tests.vector_models import save, sentence_transformer
from tests.clients.environment import python

SCRIPTS = Path(__file__).parent / "scripts"
AT_ONCE = 2
LIMIT_S = 200
ROUNDS = {
    "openai_sdk": (
        "chat", "stream", "several_answers_with_log_probabilities", "structured", "structured_stream", "tools", "tools_stream",
        "legacy_completions", "embeddings", "models", "responses", "responses_structured", "responses_tools",
        "errors", "responses_errors",
    ),
    "litellm_sdk": ("chat", "stream", "structured", "tools", "responses", "embeddings", "errors"),
    "langchain_sdk": ("chat", "stream", "structured", "tools", "responses", "embeddings", "errors"),
    "llama_index_sdk": ("chat", "stream", "completion", "structured", "tools", "errors"),
    "pydantic_ai_sdk": ("chat", "stream", "structured", "tools", "responses", "errors"),
    "instructor_sdk": ("structured", "tools", "stream", "errors"),
    "anthropic_sdk": ("chat", "stream", "tools", "tools_stream", "errors"),
}  # fmt: skip
"""What each script must have done."""
Runs = Mapping[str, "Future[subprocess.CompletedProcess[str]]"]


class Outside:
    """Stands for all other machines: a client that calls one through the proxy of its environment is counted."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                self.calls.append(connection.recv(200))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """The demo model, and one that embeds."""
    folder = save("bert", tmp_path_factory.mktemp("clients") / "m", **sentence_transformer("mean_tokens"))
    flags = ("--device", "cpu", "--served-model-name")
    with (
        ServerProcess(*flags, "demo") as text,
        ServerProcess(*flags, "embedder", model=str(folder)) as vectors,
    ):
        yield text.wait_ready(), vectors.wait_ready()


@pytest.fixture(scope="module")
def runs(
    servers: tuple[ServerProcess, ServerProcess], outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """All scripts, a few at a time: most of what they take is their imports."""
    text, vectors = servers
    home = tmp_path_factory.mktemp("home")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1",
        "SERVER_URL": text.url, "EMBEDDINGS_URL": vectors.url,
        "http_proxy": outside.url, "https_proxy": outside.url, "all_proxy": outside.url, "no_proxy": "127.0.0.1",
        # What LiteLLM's users set who do not want it to fetch its table of prices at each start.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    program = python()

    def run(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, SCRIPTS / f"{name}.py"],
            env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False,
        )  # fmt: skip

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name) for name in ROUNDS}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_client_does_its_whole_round(name: str, runs: Runs) -> None:
    result = runs[name].result()
    done = tuple(re.findall(r"^step done: (\w+)$", result.stdout, re.MULTILINE))
    assert result.returncode == 0, f"it did {done}, and then:\n{result.stderr[-4000:]}"
    assert done == ROUNDS[name]


def test_no_client_called_another_machine(runs: Runs, outside: Outside) -> None:
    for run in runs.values():
        run.result()
    assert outside.calls == []


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*_sdk.py")} == set(ROUNDS)
