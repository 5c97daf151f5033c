"""What the API process costs the engine: the messages of one step, encoded and written to the socket between the two."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Sequence

from llmendpoint_server import protocol
from llmendpoint_server.core.request import RequestOutput
from llmendpoint_server.engine.connection import Connection
from tests.bench.results import Result

STEPS = 400
ROUNDS = 5
FAST_STEP_S = 0.008
"""A step of 256 sequences of a small model on a large GPU. On a CPU a step is longer."""
MOST_US = 0.05 * FAST_STEP_S * 1e6


def _drain(end: socket.socket) -> None:
    while end.recv(2**20):
        pass


def microseconds_a_step(rows: int) -> float:
    """CPU of the engine's thread for the outputs of one step and its statistics."""
    ours, theirs = socket.socketpair()
    reader = threading.Thread(target=_drain, args=(theirs,), daemon=True)
    reader.start()
    connection = Connection(ours)
    outputs = tuple(RequestOutput(f"chatcmpl-{row:032x}", (1000 + row,)) for row in range(rows))
    before = time.thread_time()
    for _ in range(STEPS):
        connection.send(protocol.StepOutput(outputs), protocol.Stats(running=rows))
    spent = (time.thread_time() - before) / STEPS
    ours.close()
    reader.join(10)
    theirs.close()
    return spent * 1e6


def results(rows: Sequence[int]) -> list[Result]:
    found = []
    for count in rows:
        spent = statistics.median(microseconds_a_step(count) for _ in range(ROUNDS))
        found.append(
            Result(
                f"engine's CPU for the messages of one step, {count} rows", spent, "us",
                f"5 % of a step of {FAST_STEP_S * 1e3:g} ms: {MOST_US:g} us", spent / MOST_US, "ratio <= 1",
            )
        )  # fmt: skip
    return found
