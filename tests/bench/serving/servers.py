"""The server processes: this project's and vLLM's, on 127.0.0.1."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.engine.environments import CannotRun, last_line
from tests.bench.results import RESULTS

START_LIMIT_S, END_LIMIT_S, POLL_S = 600, 10, 0.02
STREAMS_MAX = 64


@dataclass(frozen=True)
class Server:
    """A running server. `ready_after`: seconds from the start of its process."""

    port: int
    model: str
    ready_after: float


@contextlib.contextmanager
def ours(model: str, *flags: str, cpu: int | None = None) -> Iterator[Server]:
    """`cpu`: the only processor that it may use; None: all."""
    bound = () if cpu is None else ("taskset", "-c", str(cpu))
    command = (*bound, sys.executable, "-m", "llmendpoint_server", "--host", "127.0.0.1", "--model", model, "--served-model-name", "bench")  # fmt: skip
    with running("llmendpoint-server", (*command, *flags), {}, "/ready") as server:
        yield server


@contextlib.contextmanager
def vllm(interpreter: Path, model: Path, dtype: str) -> Iterator[Server]:
    """vLLM's CPU server with all processors, as much memory for its cache, and no prefix cache."""
    flags = {
        "--model": str(model),
        "--served-model-name": "bench",
        "--host": "127.0.0.1",
        "--dtype": dtype,
        "--max-num-seqs": str(STREAMS_MAX),
        "--max-model-len": "2048",
    }
    command = (str(interpreter), "-m", "vllm.entrypoints.openai.api_server", *(word for pair in flags.items() for word in pair), "--no-enable-prefix-caching")  # fmt: skip
    settings = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with running("vllm-server", command, settings, "/health") as server:
        yield server


@contextlib.contextmanager
def running(name: str, command: tuple[str, ...], settings: dict[str, str], path: str) -> Iterator[Server]:
    """The server, ready. Raises CannotRun with the last line of its log if it ends first."""
    port = free_port()
    log = RESULTS / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            (*command, "--port", str(port)),
            stdout=output,
            stderr=output,
            env={**os.environ, **settings},
            start_new_session=True,  # a group of its own, so that no process of it is left
        )
    try:
        while not _answers(port, path):
            if process.poll() is not None:
                raise CannotRun(f"ended: {last_line(log.read_text(errors='replace'))}")
            if time.monotonic() - started > START_LIMIT_S:
                raise CannotRun(f"not ready after {START_LIMIT_S} s")
            time.sleep(POLL_S)
        yield Server(port, "bench", time.monotonic() - started)
    finally:
        process.terminate()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
