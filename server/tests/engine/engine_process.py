"""Starts the engine's process and stands for the API process, for tests that talk to it over its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from llmendpoint_server import protocol

LIMIT_SECONDS = 120.0


class Engine:
    """A started engine process and its socket."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(LIMIT_SECONDS)
        self._reader = protocol.ApiReader()
        self._heard: list[protocol.FromEngine] = []
        self.stats = protocol.Stats()
        """the last ones"""
        with theirs:
            command = [sys.executable, "-m", "llmendpoint_server.engine", "--socket-fd", str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def send(self, *messages: protocol.ToEngine) -> None:
        self.socket.sendall(protocol.encode(*messages))

    def next(self) -> protocol.FromEngine:
        """The next message that is no heartbeat."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            while self._heard:
                message = self._heard.pop(0)
                if not isinstance(message, protocol.Stats):
                    return message
                self.stats = message
            data = self.socket.recv(2**20)
            assert data, f"the engine process is gone, exit code {self.process.wait(10)}"
            self._heard += self._reader.feed(data)
        raise AssertionError(f"nothing but heartbeats for {LIMIT_SECONDS} s")

    def until_ready(self) -> protocol.Loaded:
        loaded = None
        while (message := self.next()) != protocol.StateChanged("ready"):
            loaded = message if isinstance(message, protocol.Loaded) else loaded
        assert loaded is not None
        return loaded

    def outputs(self, name: str) -> list[protocol.RequestOutput]:
        """All outputs of one request, up to its end."""
        found: list[protocol.RequestOutput] = []
        while not (found and found[-1].finish):
            message = self.next()
            assert isinstance(message, protocol.StepOutput)
            found += [output for output in message.outputs if output.id == name]
        return found

    def children(self) -> list[int]:
        """The processes that it has started and that live."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        try:
            self.process.wait(LIMIT_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()


def lives(pid: int) -> bool:
    """Whether the process runs. One that has ended and is not awaited does not."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def ends(pid: int, seconds: float = 15.0) -> bool:
    """Whether the process has ended within so long."""
    end = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not lives(pid)
