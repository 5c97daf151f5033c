"""docs/concepts/parallelism.md: the server with two processes gives the demo model's texts of one, drains, and leaves none behind."""

from __future__ import annotations

from pathlib import Path

import httpx

from server.tests.engine.engine_process import ends
from server.tests.server_process import ServerProcess

QUESTIONS = ("What is this project?", "How do I install it?", "Thank you so much")


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def texts(server: ServerProcess) -> list[str]:
    found = []
    for question in QUESTIONS:
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": 40,
        }
        answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60).json()
        found.append(answer["choices"][0]["message"]["content"])
    return found


def test_the_server_with_two_ranks_says_what_one_says_and_drains() -> None:
    with (
        ServerProcess("--device", "cpu", "--dtype", "float32") as one,
        ServerProcess("--device", "cpu", "--dtype", "float32", "--tensor-parallel-size", "2") as two,
    ):
        assert texts(two.wait_ready()) == texts(one.wait_ready())
        (engine,) = (pid for pid in children(two.process.pid) if children(pid))
        (rank,) = children(engine)
        two.terminate()
        assert two.wait_exit() == 0
        assert ends(rank)
