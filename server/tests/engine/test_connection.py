"""docs/concepts/architecture.md: the engine process goes on while the API process does not read, and gives up one that never does."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from llmendpoint_server import protocol
from llmendpoint_server.core.batch import NOTHING, Batch, Sampled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.engine import connection
from llmendpoint_server.engine.connection import ApiProcessStalled, Connection
from llmendpoint_server.engine.loop import Engine
from llmendpoint_server.engine.process import compute

TOKENS = 3000  # as many messages fill a socket's buffer several times


class OneToken:
    masks = stack = None

    def run(self, batch: Batch) -> list[Sampled]:
        return [Sampled((7,)) if row.sample else NOTHING for row in batch.rows]

    def check(self) -> None: ...


class Computing:
    """An engine with one request of TOKENS tokens, computing in a thread; `api` is the other end of its socket."""

    def __init__(self) -> None:
        self.api, ours = socket.socketpair()
        scheduler = Scheduler(SchedulerConfig(2 * TOKENS, 4, 4, 64, 100), BlockManager(TOKENS, 16))
        self.engine = Engine(OneToken(), scheduler)
        self.engine.add(Request("a", (1,), SamplingParams(TOKENS, temperature=0)))
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._compute, args=(Connection(ours),), daemon=True)
        self._thread.start()

    def _compute(self, end: Connection) -> None:
        try:
            compute(end, self.engine)
        except (EOFError, ApiProcessStalled) as error:
            self.error = error

    def wait_for_steps(self, steps: int) -> None:
        deadline = time.monotonic() + 30
        while self.engine.scheduler.counters.steps < steps:
            assert time.monotonic() < deadline, f"no step after the {self.engine.scheduler.counters.steps}th"
            time.sleep(0.01)

    def end(self) -> BaseException | None:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.error


def test_steps_go_on_while_the_api_process_does_not_read_and_nothing_is_lost() -> None:
    computing = Computing()
    computing.wait_for_steps(TOKENS)
    reader, tokens, finish = protocol.ApiReader(), 0, None
    computing.api.settimeout(30)
    while finish is None:
        for message in reader.feed(computing.api.recv(2**16)):
            if isinstance(message, protocol.StepOutput):
                tokens += len(message.outputs[0].tokens)
                finish = message.outputs[0].finish
    assert tokens == TOKENS
    computing.api.close()
    assert isinstance(computing.end(), EOFError)


def test_an_api_process_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_UNREAD_BYTES", 50_000)
    computing = Computing()
    error = computing.end()
    assert isinstance(error, ApiProcessStalled)
    assert "bytes unread; the limit is 50000" in str(error)
    computing.api.close()
